"""Reports which reserved powers patched files use, according to the interpreter's audit events.

PYTEST_DONT_REWRITE
"""

import os
import sys
import types
from _thread import get_ident
from contextlib import contextmanager
from importlib.machinery import SourceFileLoader

from swelab.grading.inside.watch import WATCHED, files_behind

ENCODING = sys.getfilesystemencoding()
EXHAUSTED = (RecursionError, MemoryError)
EVENTS = frozenset(
    "gc.get_objects gc.get_referrers gc.get_referents sys._getframe sys._current_frames sys.settrace "
    "sys.setprofile sys.addaudithook ctypes.dlopen ctypes.dlsym ctypes.addressof os.fork os.forkpty os.exec "
    "os.kill os.posix_spawn exec compile object.__setattr__ object.__getattr__ code.__new__ "
    "function.__new__ subprocess.Popen os.system fcntl.fcntl mmap.__new__ sys._current_exceptions "
    "sys.monitoring.register_callback".split()
)
WRITES = frozenset("open os.rename os.remove os.link os.symlink os.truncate os.chmod".split())
PAIRS = frozenset("os.rename os.link os.symlink".split())
RECORDED = EVENTS | WRITES
ATTRIBUTES = ("object.__setattr__", "object.__getattr__")
LOOKED_AT = frozenset("__code__ tb_frame gi_frame cr_frame ag_frame".split())
FRAMES = frozenset("tb_frame gi_frame cr_frame ag_frame".split())
IMPORTING = frozenset(
    "importlib._bootstrap importlib._bootstrap_external _frozen_importlib _frozen_importlib_external".split()
)
STDLIB = frozenset(getattr(sys, "stdlib_module_names", ())) or frozenset(
    name.partition(".")[0] for name in os.listdir(os.path.dirname(os.__file__)) if name != "site-packages"
).union(sys.builtin_module_names, ["zipimport"])
OWN_USE = {
    "asyncio.base_tasks": "_task_get_stack",
    "inspect": "currentframe stack trace getouterframes getinnerframes getargvalues getgeneratorlocals "
    "getcoroutinelocals getasyncgenlocals",
    "logging": "currentframe <lambda>",
    "traceback": "walk_stack walk_tb _walk_tb_with_full_positions extract extended_frame_gen "
    "extended_frame_generator _extract_from_extended_frame_gen extract_stack format_stack print_stack",
    "types": "gi_frame gi_code",
    **dict.fromkeys(
        "annotationlib ast asyncore asyncio.coroutines asyncio.events asyncio.format_helpers asyncio.futures "
        "asyncio.streams collections dataclasses dis enum gettext subprocess typing warnings "
        "importlib.resources._common multiprocessing concurrent".split(),
        "",
    ),
}
"""Modules and packages of the standard library that use reserved powers for themselves, and the names of
their functions that hand out what they get.

Any other module of the standard library acts for its caller: it reads an attribute or runs code that its
caller names.
"""
WRITTEN = "(code written by the tests' run)"
DEEP = frozenset(
    "gc.get_objects gc.get_referrers gc.get_referents sys.settrace sys.setprofile sys.addaudithook "
    "sys._current_frames sys._current_exceptions sys.monitoring.register_callback subprocess.Popen "
    "os.system".split()
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


def module_of(frame):
    """Returns the name of the module to which a frame's code belongs, or ""."""
    name = dict.get(frame.f_globals, "__name__")
    return name if type(name) is str else ""


def loader_of(frame):
    """Returns (loader, frame): the loader that an import uses, or None, and the frame that imports."""
    loader = None
    while frame is not None and module_of(frame) in IMPORTING:
        if frame.f_code.co_name == "exec_module":
            loader = frame.f_locals.get("self")
        frame = frame.f_back
    return loader, frame


def is_ordinary(loader):
    """Returns whether a loader loads what is in the Python file that it names."""
    return type(loader) is SourceFileLoader and {"name", "path"}.issuperset(vars(loader))


def innermost(error):
    """Returns the file of the code that raised an error."""
    step = error.__traceback__
    while step.tb_next is not None:
        step = step.tb_next
    return step.tb_frame.f_code.co_filename


HERE, STAT, MAIN = file_of.__code__.co_filename, os.stat, get_ident()


def wants_values(names):
    """Returns whether a function of the library was asked for the values of frames, by its local names."""
    more = names.get("kwargs")
    asked = [names.get("capture_locals"), more.get("capture_locals") if type(more) is dict else None]
    return any(each is not None and each is not False for each in asked)


class Powers:
    """Reports when files that the patch changed use reserved powers (frames, the garbage collector,
    processes, ...).

    Also reports when any code changes the tests' files.
    """

    def __init__(self, root, tests, data, faults):
        self.files, self.faults, self.busy = faults.files, faults, faults.busy
        self.data = {file_of(os.path.join(root, name)): name for name in data}
        self.data.pop(None, None)
        self.start = os.stat(os.path.dirname(HERE)).st_ctime_ns
        self.owners = {}  # type: dict[str, str]
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
        if event == "mmap.__new__" and arguments[:1] == (-1,):
            return  # anonymous memory, which ends with its process
        if event == "exec" and type(arguments[0]) is types.CodeType:
            self.executed(arguments[0], frame)
        if event in DEEP:
            name = self.behind(frame, event)
        else:
            name = self.asking(event, arguments, frame)
        if name:
            self.use(name + " " + event)

    def executed(self, code, frame):
        """Reports when a data file of the patch runs as code, and when patched code imports what nobody has
        audited: a Python file that was written since the tests started, or what an own loader loads."""
        data = self.data.get(file_of(code.co_filename))
        if data:
            self.use(data + " runs_as_code")
        if frame is None or module_of(frame) not in IMPORTING:
            return
        loader, frame = loader_of(frame)
        if loader is None or (is_ordinary(loader) and self.owner(code.co_filename) != WRITTEN):
            return
        parts = [*vars(loader).values()] if hasattr(loader, "__dict__") else []
        for kind in type(loader).__mro__:
            parts += vars(kind).values()
        files = (file for part in parts for file in files_behind(part) if type(file) is str)
        who = next((self.files[file] for file in files if file in self.files), None)
        who = who or self.behind(frame, "import")
        if who:
            self.use(who + " imports_unread_code")

    def owner(self, path):
        """Returns the patched file with this path, WRITTEN for a file that was written since the tests
        started, or ""."""
        if path in self.files:
            return self.files[path]
        if path not in self.owners:
            try:
                later = os.stat(path).st_ctime_ns > self.start
            except (OSError, ValueError):
                later = False
            self.owners[path] = WRITTEN if later else ""
        return self.owners[path]

    def asking(self, event, arguments, frame):
        """Returns the patched file that causes an event, or None.

        That is the file of the code that causes it directly, or of the code for which that code acts.
        """
        if frame is not None and module_of(frame) in IMPORTING:
            if event == "compile":
                return None  # the code has not run yet
            loader, frame = loader_of(frame)
            if loader is not None:
                return None
        attribute = arguments[1] if event in ATTRIBUTES else ""
        while frame is not None:
            owner = self.owner(frame.f_code.co_filename)
            if owner:
                return owner
            frame = frame.f_back if self.acts_for_caller(frame, attribute) else None
            attribute = ""
        return None

    def acts_for_caller(self, frame, attribute):
        """Returns whether the code of a frame causes an event for its caller, and not for itself.

        Generated code does, and the standard library as OWN_USE says. Code of other packages does if it
        reads an attribute of a frame that it does not name. attribute: what the code itself reads, or "".
        """
        code, module = frame.f_code, module_of(frame)
        top = module.partition(".")[0]
        if code.co_filename in self.tests or top in WATCHED:
            return False
        unnamed = attribute not in code.co_names and attribute not in code.co_consts
        if attribute and unnamed and (attribute in FRAMES or top in STDLIB):
            return True
        if top in STDLIB:
            own = OWN_USE.get(module, OWN_USE.get(top) if top in ("multiprocessing", "concurrent") else None)
            return own is None or code.co_name in own.split() or wants_values(frame.f_locals)
        return code.co_filename.startswith("<")

    def behind(self, frame, event):
        """Returns the patched file that caused the event in `frame`, directly or indirectly, or None.

        The first patched file, test or runner on the stack decides. Returns "(a thread)" if a thread's stack
        has none of them and the event is in IN_THREADS.
        """
        while frame is not None:
            path = frame.f_code.co_filename
            owner = self.owner(path)
            if owner:
                return owner
            if path in self.tests or module_of(frame).partition(".")[0] in WATCHED:
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
            if not reads and name.endswith(".pyc") and not is_ordinary(loader_of(frame)[0]):
                who = self.behind(frame, event)
                if who:
                    self.use(who + " writes_bytecode")
            if not reads and (test or (event != "open" and name == "conftest.py")):
                self.use("(a test's file) " + event)
