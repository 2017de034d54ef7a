"""Calls functions that parse hostile text in child processes, with limits on time and memory.

A regular expression that backtracks without end, or a parser that recurses without end, holds the
interpreter's lock and blocks its whole process. In a child process, it blocks only the child. The child is
killed and restarted.
"""

import os
import pickle
import resource
import select
import signal
import struct
import subprocess
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

from swelab.records import Fault

Result = TypeVar("Result")

CPU_SECONDS = 20.0
MEMORY_BYTES = 4 << 30
_WALL_SECONDS = 15 * CPU_SECONDS
_BY_OTHERS = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGHUP)
"""Exit codes after which a call is repeated once, because the limits do not cause them."""

_SIZE = struct.Struct("<Q")
_SERVE = "import sys; sys.path[:] = sys.argv[1:]; from swelab.jobs.bounded_calls import serve; serve()"


class Unread(Fault):
    """A call did not end within its limits of time and memory."""


class BoundedCalls:
    """Calls module-level functions in child processes, which are started on demand and reused.

    Thread-safe. Concurrent calls run in different children, so a slow call delays no other call. Arguments
    and results are pickled. cpu_seconds: CPU time limit of each call.
    """

    def __init__(self, cpu_seconds: float = CPU_SECONDS):
        self._cpu_seconds = cpu_seconds
        self._idle: list[_Child] = []

    def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Calls the function in a child process. Returns its result, or raises its exception.

        Raises Unread if the call exceeds its limits, OSError if no process can be started.
        """
        request = pickle.dumps((self._cpu_seconds, function, arguments))
        try:
            child = self._idle.pop()
        except IndexError:
            child = _Child(self._cpu_seconds)
        try:
            answer = child.answer(request)
        except BaseException:
            child.end()
            raise
        self._idle.append(child)
        is_fine, value = pickle.loads(answer)
        if not is_fine:
            raise value
        return value  # type: ignore[no-any-return]


class _Child:
    """A process that answers one call at a time. It is restarted if it has died, and after a fork."""

    def __init__(self, cpu_seconds: float):
        self._cpu_seconds = cpu_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0

    def answer(self, request: bytes) -> bytes:
        """Returns the pickled result of a pickled call. Raises Unread, OSError."""
        for is_last in (False, True):
            try:
                return self._ask(self._running(), request)
            except EOFError:
                was_killed = self._ended_with() in _BY_OTHERS
                self.end()
            if is_last or not was_killed:
                break
        bounds = f"{self._cpu_seconds:g} s or {MEMORY_BYTES >> 30} GiB"
        raise Unread(f"it took more than {bounds}")

    def _ended_with(self) -> int | None:
        """Returns the exit code of the process, or None if it still runs. Waits up to a second."""
        try:
            return self._process.wait(1) if self._process else None
        except subprocess.TimeoutExpired:
            return None

    def _running(self) -> "subprocess.Popen[bytes]":
        if self._process is None or self._owner != os.getpid() or self._process.poll() is not None:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SERVE, *sys.path],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            self._owner = os.getpid()
            weakref.finalize(self, _close, self._process, self._owner)
        return self._process

    def _ask(self, child: "subprocess.Popen[bytes]", request: bytes) -> bytes:
        assert child.stdin and child.stdout
        try:
            child.stdin.write(_SIZE.pack(len(request)) + request)
            child.stdin.flush()
        except BrokenPipeError:
            raise EOFError from None
        return _read(child.stdout.fileno(), time.monotonic() + _WALL_SECONDS)

    def end(self) -> None:
        """Ends the process, if there is one."""
        if self._process is not None:
            _close(self._process, self._owner)
            self._process = None


def _close(child: "subprocess.Popen[bytes]", owner: int) -> None:
    if os.getpid() == owner:
        child.kill()
        for end in (child.stdin, child.stdout):
            if end:
                end.close()
        child.wait()


def _read(descriptor: int, deadline: float | None = None) -> bytes:
    """Reads a whole message. Raises EOFError if it does not arrive in time or the other side has died."""
    size = _SIZE.unpack(_exactly(descriptor, _SIZE.size, deadline))[0]
    return _exactly(descriptor, size, deadline)


def _exactly(descriptor: int, size: int, deadline: float | None) -> bytes:
    poll, parts = select.poll(), list[bytes]()
    poll.register(descriptor, select.POLLIN)
    while size:
        if deadline and not poll.poll(1000 * max(0.0, deadline - time.monotonic())):
            raise EOFError
        part = os.read(descriptor, min(size, 1 << 20))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _pack_error(error: Exception) -> bytes:
    try:
        pickle.loads(packed := pickle.dumps((False, error)))
        return packed
    except Exception:  # the exception's class cannot be pickled
        return pickle.dumps((False, RuntimeError(f"{type(error).__name__}: {error}")))


def serve() -> None:
    """Answers calls in the child until the parent dies.

    The kernel kills the child if a call takes too long.
    """
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # a function's output must not mix with the answers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while True:
        try:
            seconds, function, arguments = pickle.loads(_read(0))
        except EOFError:
            return
        signal.setitimer(signal.ITIMER_PROF, seconds)  # the signal ends the process, even in native code
        try:
            answer = pickle.dumps((True, function(*arguments)))
        except MemoryError:
            return
        except Exception as error:
            answer = _pack_error(error)
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(_SIZE.pack(len(answer)) + answer)
        answers.flush()
