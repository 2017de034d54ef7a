"""The one-way record of an observed run, and errors of the guard itself. PYTEST_DONT_REWRITE

Each observation leaves the process at once, as numbered lines in the stream that carries the run's log. Each
line is sealed with a key that is deleted when the line has been written. So code that finds the channel later
can neither remove nor replace an earlier observation.

An error in the guard's own code is never attributed to the patch. The error is reported at once, with its
traceback. If a patched file is on the stack, the report names the file. Tested code can also make the guard
fail by a signal handler that is written in C: Python calls the handler in the middle of the guard's code, and
the traceback of the handler's error then names no file of the patch. So the guard blocks signals while it
works, and its report names the handlers that tested code has set.
"""

import _signal
import hashlib
import importlib.util
import json
import os
import sys
import traceback
import types
from _thread import RLock, get_ident

HERE = os.path.dirname(os.path.abspath(__file__))
PLAN = os.path.join(HERE, "plan.json")
STREAM = os.path.join(HERE, "told")
ASIDE = frozenset("-h --help -V -VV --version --markers --fixtures --collect-only --co".split())
"""Options with which pytest runs no test.

A process with such an option leaves the plan to a later process.
"""
EXHAUSTED = (RecursionError, MemoryError)
"""Errors that tested code can cause anywhere, so they are not errors of the guard."""
MOST_FAULTS, MOST_TEXT = 5, 20000
PIECE = 3500
"""Maximum bytes of a line. Shorter writes are not mixed with text of other writers, as PIPE_BUF is 4096."""


def own_copy(name):
    """Returns a private copy of a standard library module, which other code cannot find or change."""
    spec = importlib.util.find_spec(name)
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


ENCODE, DIGEST = own_copy("json.encoder").JSONEncoder().encode, hashlib.sha256
WRITE, OPEN, STAT, PROCESS = os.write, os.open, os.fstat, os.getpid
MASK, HANDLER = _signal.pthread_sigmask, _signal.getsignal
NUMBERS = sorted(getattr(_signal, "valid_signals", lambda: range(1, 32))())
FAULT_SIGNALS = frozenset([_signal.SIGSEGV, _signal.SIGBUS, _signal.SIGFPE, _signal.SIGILL, _signal.SIGABRT])
"""Signals of the processor, for which faulthandler has handlers. They do not wait."""
WAITING = frozenset(NUMBERS) - FAULT_SIGNALS


def command_words():
    """Returns the words of this process's command line."""
    try:
        with open("/proc/self/cmdline", "rb") as stream:
            return [os.fsdecode(word) for word in stream.read().split(b"\0")]
    except OSError:
        return []


def read_plan():
    """Returns the plan of the run, or None if another process has already removed the plan."""
    try:
        with open(PLAN) as stream:
            return json.load(stream)
    except (OSError, ValueError):
        return None


def claim():
    """Returns the plan of the run and removes the plan's file. Returns None in every later process."""
    plan = None if ASIDE.intersection(command_words()) else read_plan()
    if plan is not None:
        os.unlink(PLAN)
    return plan


class Channel:
    """The stream out of the sandbox.

    Only this process writes to the stream; forks of the process write nothing.
    """

    __slots__ = ("file", "key", "lock", "mark", "number", "process", "stream")  # nobody can shadow a method

    def __init__(self, plan):
        self.mark, self.key, self.number = plan["nonce"].encode(), bytearray.fromhex(plan["key"]), 0
        self.process, self.lock = PROCESS(), RLock()
        self.open()

    def open(self):
        """Reopens the stream, so that it shares no file flags with processes that write to the log."""
        self.stream = OPEN(STREAM, os.O_WRONLY | os.O_CLOEXEC)
        self.file = STAT(self.stream)[1:3]

    def tell(self, *words):
        """Writes one observation. words: plain values."""
        if PROCESS() != self.process:
            return
        body = ENCODE(words).encode("ascii")
        with self.lock:
            for start in range(0, len(body), PIECE):
                rest = b"+" if start + PIECE < len(body) else b"."
                self.write(rest + body[start : start + PIECE])

    def write(self, piece):
        """Writes one line. Reopens the stream if tested code has closed it."""
        text = b"%d %s" % (self.number, piece)
        seal = DIGEST(self.key + text).hexdigest()[:32].encode()  # cut in half, so nobody can extend the hash
        self.key[:] = DIGEST(self.key).digest()
        self.number += 1
        try:
            same = STAT(self.stream)[1:3] == self.file
        except OSError:
            same = False
        if not same:
            self.open()
        WRITE(self.stream, b"\x1e%s %s %s\x1f" % (self.mark, seal, text))


def code_of(handler):
    """Returns the code in which a call of a signal handler raises its errors, or None.

    None for a handler in C, and for a Python function that takes other arguments: its call raises before its
    code runs.
    """
    is_method = type(handler) is types.MethodType
    function = handler.__func__ if is_method else handler
    if type(function) is not types.FunctionType:
        return None
    code = function.__code__
    return code if code.co_argcount == 2 + is_method or code.co_flags & 4 else None  # 4: *arguments


class Faults:
    """Reports errors of the guard's own code. As a context manager, reports errors raised in its block, and
    lets signals wait until the block ends."""

    def __init__(self, plan):
        self.channel = Channel(plan)
        self.files = {os.path.join(plan["root"], name): name for name in plan["changed"]}
        self.count = 0
        self.busy = set()  # threads in which the guard itself runs
        self.masks = []  # type: list[set[int]]
        self.handlers = {number: HANDLER(number) for number in NUMBERS}
        self.set_later = {}  # type: dict[int, tuple[int, object]]

    def __enter__(self):
        before = MASK(_signal.SIG_BLOCK, ())
        try:
            MASK(_signal.SIG_BLOCK, WAITING)
            self.look_at_handlers()
        except BaseException:
            MASK(_signal.SIG_SETMASK, before)
            raise
        self.masks.append(before)
        return self

    def __exit__(self, kind, error, trace):
        try:
            if isinstance(error, Exception) and not isinstance(error, EXHAUSTED):
                self.note(error)
        finally:
            MASK(_signal.SIG_SETMASK, self.masks.pop())

    def look_at_handlers(self):
        """Stores signal handlers that were set since the start, even if they are taken back later."""
        for number, before in self.handlers.items():
            now = HANDLER(number)
            if now is not before and callable(now):
                self.set_later[id(now)] = (number, now)

    def interrupter(self, places):
        """Returns which signal handler may have raised an error, or "".

        The code of a handler in Python is among the places of the error's traceback.
        """
        self.look_at_handlers()
        for number, handler in self.set_later.values():
            code = code_of(handler)
            if code is None or code.co_filename in places:
                return f"a handler of signal {number}"
        return ""

    def note(self, error):
        """Reports an error."""
        within = get_ident() in self.busy
        self.busy.add(get_ident())
        try:
            if self.count < MOST_FAULTS:
                self.count += 1
                self.channel.tell("fault", self.described(error))
        finally:
            if not within:
                self.busy.discard(get_ident())

    def described(self, error):
        """Returns {"error", "traceback", "patched"}. patched: the patched file on the stack, or the signal
        handler that may have raised the error, or ""."""
        places = [getattr(error, "filename", None)]
        step, frame = error.__traceback__, sys._getframe().f_back
        while step is not None:
            places.append(step.tb_frame.f_code.co_filename)
            step = step.tb_next
        while frame is not None:
            places.append(frame.f_code.co_filename)
            frame = frame.f_back
        patched = [self.files[place] for place in places if type(place) is str and place in self.files]
        patched = patched or [self.interrupter(places)]
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        line = traceback.format_exception_only(type(error), error)[-1].strip()
        return {"error": line, "traceback": text[-MOST_TEXT:], "patched": patched[0]}


def name_of(kind):
    """Returns the interpreter's own name for a type, or "?" if there is none or `kind` is not a type."""
    name = type.__dict__["__name__"].__get__(kind) if isinstance(kind, type) else ""
    return name or "?"


def note_at_start(error):
    """Reports an error that occurred before the observer took the plan."""
    plan = claim()
    if plan is not None:
        Faults(plan).note(error)
