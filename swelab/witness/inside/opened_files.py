"""Records the files of the repository that a run of a question opens, with the gold patch at validation."""

import os
import sys


class Needs:
    """Which files and folders of the repository this process opens or lists, by the audit events."""

    def __init__(self):
        self.root, self.paths = os.path.realpath(os.getcwd()), set()
        self.watches = hasattr(sys, "addaudithook")
        if self.watches:
            sys.addaudithook(self.heard)

    def heard(self, event, arguments):
        """One audit event; pytest and the import system list folders in which they look for modules."""
        if event not in ("open", "os.listdir", "os.scandir") or not isinstance(arguments[0], (str, bytes)):
            return
        if event != "open":
            asking = sys._getframe(1).f_globals.get("__name__", "")
            if asking.startswith(("_pytest", "importlib", "_frozen_importlib", "py.")):
                return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if path.startswith(self.root + os.sep):
            self.paths.add(os.path.relpath(path, self.root) + ("" if event == "open" else os.sep))
