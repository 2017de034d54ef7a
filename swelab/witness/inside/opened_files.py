"""Records which files of the repository a question opens when it runs with the gold patch at validation."""

import os
import sys


class Needs:
    """The files and folders of the repository that this process opens or lists, from audit events."""

    def __init__(self):
        self.root, self.paths = os.path.realpath(os.getcwd()), set()
        self.watches = hasattr(sys, "addaudithook")
        if self.watches:
            sys.addaudithook(self.heard)

    def heard(self, event, arguments):
        """Handles one audit event. Ignores listings by pytest and by the import system."""
        if event not in ("open", "os.listdir", "os.scandir") or not isinstance(arguments[0], (str, bytes)):
            return
        if event != "open":
            asking = sys._getframe(1).f_globals.get("__name__", "")
            if asking.startswith(("_pytest", "importlib", "_frozen_importlib", "py.")):
                return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if path.startswith(self.root + os.sep):
            self.paths.add(os.path.relpath(path, self.root) + ("" if event == "open" else os.sep))
