"""Reports which reserved powers patched files use, according to the interpreter's audit events.

PYTEST_DONT_REWRITE
"""

import os
import sys
from _thread import get_ident
from contextlib import contextmanager

from swelab.grading.inside.watch import WATCHED

ENCODING = sys.getfilesystemencoding()
EXHAUSTED = (RecursionError, MemoryError)
EVENTS = frozenset(
    "gc.get_objects gc.get_referrers gc.get_referents sys._getframe sys._current_frames sys.settrace "
    "sys.setprofile sys.addaudithook ctypes.dlopen ctypes.dlsym ctypes.addressof os.fork os.forkpty os.exec "
    "os.kill os.posix_spawn exec compile object.__setattr__ object.__getattr__ code.__new__ "
    "function.__new__ subprocess.Popen os.system fcntl.fcntl mmap.__new__".split()
)
WRITES = frozenset("open os.rename os.remove os.link os.symlink os.truncate os.chmod".split())
PAIRS = frozenset("os.rename os.link os.symlink".split())
RECORDED = EVENTS | WRITES
ATTRIBUTES = ("object.__setattr__", "object.__getattr__")
LOOKED_AT = frozenset("__code__ tb_frame gi_frame cr_frame ag_frame".split())
HANDING_OUT = ("traceback", "inspect", "logging")
"""Modules that return frames. Patched code that calls them counts as code that gets a frame."""
DEEP = frozenset(
    "gc.get_objects gc.get_referrers gc.get_referents sys.settrace sys.setprofile sys.addaudithook "
    "sys._current_frames subprocess.Popen os.system".split()
)
"""For these events, indirect callers count too."""
IN_THREADS = frozenset("gc.get_objects gc.get_referrers sys._current_frames open".split())
"""These events also count in a thread whose stack has no test, no runner and no patched file."""


def plain(value):
    """Returns whether a value is exactly a str: a subclass may misreport its value."""
    return type(value) is str


def real(path):
    """Returns the true characters of a path, even if the path's class misreports them.

    Other values are returned unchanged.
    """
    if isinstance(path, str):
        return str.__str__(path)
    return bytes.decode(path, ENCODING, "surrogateescape") if isinstance(path, bytes) else path


def file_of(path):
    """Returns (device, inode) of a file, given any of its names or descriptors, or None if there is no
    file.
    """
    try:
        return STAT(path)[1:3]
    except (OSError, ValueError, TypeError):
        return None


def innermost(error):
    """Returns the file of the code that raised an error."""
    step = error.__traceback__
    while step.tb_next is not None:
        step = step.tb_next
    return step.tb_frame.f_code.co_filename


HERE, STAT, MAIN = file_of.__code__.co_filename, os.stat, get_ident()


class Powers:
    """Reports when files that the patch changed use reserved powers (frames, the garbage collector,
    processes, ...).

    Also reports when any code changes the tests' files.
    """

    def __init__(self, root, tests, faults):
        self.files, self.faults, self.busy = faults.files, faults, faults.busy
        self.tests = {os.path.join(root, name) for name in tests}
        self.names = {os.path.basename(name) for name in tests}
        self.test_files = set(map(file_of, self.tests)) - {None}
        self.findings = set()  # type: set[str]
        self.hook = self.plain_hook()
        if hasattr(sys, "addaudithook"):
            sys.addaudithook(self.hook)

    def use(self, what):
        """Reports that a power was used. Each power is reported once."""
        if what not in self.findings:
            self.findings.add(what)
            self.faults.channel.tell("power", what)

    @contextmanager
    def paused(self):
        """Counts the actions of this thread as the grader's while the block runs."""
        self.busy.add(get_ident())
        try:
            yield
        finally:
            self.busy.discard(get_ident())

    def plain_hook(self):
        """Wraps `audit` in a plain function, which the interpreter calls in less than half the time of a
        method. A run has tens of thousands of events.
        """
        recorded, busy, thread, audit = RECORDED, self.busy, get_ident, self.audit

        def hook(event, arguments):
            if event in recorded and thread() not in busy:
                audit(event, arguments)

        return hook

    def audit(self, event, arguments):
        """Judges one recorded event of the interpreter. Only the hook calls this method."""
        if event in ATTRIBUTES and LOOKED_AT.isdisjoint(filter(plain, arguments[1:2])):
            return
        self.busy.add(get_ident())
        try:
            hook = sys._getframe().f_back
            self.weigh(event, arguments, hook.f_back)  # type: ignore[union-attr]
        except Exception as error:
            # A signal handler may have raised here, or the names may be objects that raise. These are not
            # errors of the guard.
            if not isinstance(error, EXHAUSTED) and innermost(error) == HERE:
                self.faults.note(error)
            raise
        finally:
            self.busy.discard(get_ident())

    def weigh(self, event, arguments, frame):
        """Judges an event that `frame` caused. frame: None for events before and after all Python code."""
        if event in WRITES:
            self.written(event, arguments, frame)
            return
        name = self.asking(frame) if frame else None
        if event in DEEP:
            name = self.behind(frame, event)
        if name:
            self.use(name + " " + event)

    def asking(self, frame):
        """Returns the patched file that directly causes an event.

        A call through a module that returns frames counts as direct.
        """
        module = dict.get(frame.f_globals, "__name__")
        if type(module) is str and module in HANDING_OUT and frame.f_back is not None:
            frame = frame.f_back
        return self.files.get(frame.f_code.co_filename)

    def behind(self, frame, event):
        """Returns the patched file that caused the event in `frame`, directly or indirectly, or None.

        The first patched file, test or runner on the stack decides. Returns "(a thread)" if a thread's stack
        has none of them and the event is in IN_THREADS.
        """
        while frame is not None:
            path = frame.f_code.co_filename
            if path in self.files:
                return self.files[path]
            module = dict.get(frame.f_globals, "__name__")
            if path in self.tests or (type(module) is str and module.split(".")[0] in WATCHED):
                return None
            frame = frame.f_back
        return "(a thread)" if event in IN_THREADS and get_ident() != MAIN else None

    def written(self, event, arguments, frame):
        """Reports when any code changes test files or a conftest.py, or patched code reads test files."""
        flags = [each for each in arguments[2:3] if type(each) is int]
        reads = event == "open" and not any(each & (os.O_WRONLY | os.O_RDWR | os.O_TRUNC) for each in flags)
        for path in map(real, arguments[: 2 if event in PAIRS else 1]):
            if type(path) not in (str, int):
                continue
            name = os.path.basename(path) if type(path) is str else ""
            found = file_of(path)
            if found is None and path == name and event == "open" and arguments[1] is None:
                test = name in self.names  # os.open may use another folder, by `dir_fd`
            else:
                test = found in self.test_files
            who = self.behind(frame, event) if reads and test else None
            if who:
                self.use(who + " reads_tests")
            if not reads and (test or (event != "open" and name == "conftest.py")):
                self.use("(a test's file) " + event)
