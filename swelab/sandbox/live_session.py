"""A process in a sandbox that reads lines and answers them. All local backends use this code.

A separate thread runs the command as `exec` does, under the same limits. Output is stored, up to a maximum,
until `say` returns it. If the output is a pipe, only `say` reads the pipe. So if the pipe is full, the
process waits until the next call of `say`.
"""

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from swelab.sandbox.bounded_output import BoundedOutput
from swelab.sandbox.bwrap_process import as_bytes
from swelab.sandbox.protocol import Closing, ExecResult, SandboxError, SandboxLost, SessionAnswer

LINE_BYTES = 1 << 20
PROMPT_BYTES = 256
LONGEST_SECONDS = 86400.0
LOOK_SECONDS = 1.0
"""Maximum seconds between two checks whether the process still runs."""
AWAKE_SECONDS = 0.0002
"""Seconds for which `say` polls without sleeping.

A debugger answers in less time. Waking up from a sleep would take about as long as this.
"""
AT_ONCE = 64
"""Number of pieces of an answer that are read without a pause.

A debugger writes its answer in a few pieces.
"""


class UnreadOutput(BoundedOutput):
    """The unread output of a process. Keeps the head and the tail, together at most `limit` bytes."""

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._limit = limit
        self.changed = threading.Condition()
        self.total = self.consumed = 0  # bytes since the process began
        self.last = b""
        self.awaited = b""  # notify waiting threads if the output ends with these bytes
        self.at = 0.0  # time.monotonic() of the last byte

    def add(self, chunk: bytes) -> None:
        """Adds the next bytes of the stream."""
        with self.changed:
            super().add(chunk)
            self.total += len(chunk)
            self.last = (self.last + chunk)[-PROMPT_BYTES:]
            self.at = time.monotonic()
            if self.last.endswith(self.awaited):
                self.changed.notify_all()

    def take(self) -> tuple[bytes, int]:
        """Returns the bytes stored since the last call, and the number of dropped bytes."""
        with self.changed:
            found = self.value(), self.dropped
            super().__init__(self._limit)
            self._at_once = AT_ONCE
            self.consumed = self.total
            return found


class LiveSession(Closing):
    """See `protocol.Session`.

    The argument `run` is a function that runs the command until its end. It is called in a thread. It must
    call `open` when the process accepts input. It must call `shut` before it closes the connections that it
    passed to `open`.
    """

    def __init__(self, run: Callable[["LiveSession"], ExecResult], output_bytes: int) -> None:
        """Waits until the process runs. Raises the exception of `run` if the process does not start."""
        self.heard = UnreadOutput(output_bytes)
        self._changed = self.heard.changed
        self._speaking = threading.Lock()
        self._wire: socket.socket | None = None
        self._output: int | None = None
        self._readable = select.poll()
        self._kill: Callable[[], None] | None = None
        self._opened = self._over = self._closed = False
        self._result: ExecResult | None = None
        self._fault: BaseException | None = None
        self._unsent = b""
        self._thread = threading.Thread(target=self._work, args=(run,), name="session", daemon=True)
        self._thread.start()
        with self._changed:
            self._changed.wait_for(lambda: self._opened or self._over)
        if self._fault and not self._opened:
            raise self._fault

    def _work(self, run: Callable[["LiveSession"], ExecResult]) -> None:
        try:
            self._result = run(self)
        except BaseException as fault:
            self._fault = fault
        finally:
            with self._changed:
                self._over = True
                self._changed.notify_all()

    def open(self, wire: socket.socket, kill: Callable[[], None], output: int | None = None) -> None:
        """Sets the connections to the process.

        wire: socket for the process's input. kill: function that ends the process, so that `run` returns or
        raises. output: pipe with the process's output, which `say` reads until `shut`. Without a pipe, `run`
        must add the output to `heard`.
        """
        with self._changed:
            self._wire, self._kill, self._output, self._opened = wire, kill, output, True
            if output is not None:
                self._readable.register(output, select.POLLIN)
            self._changed.notify_all()

    def shut(self) -> None:
        """Forgets the connections. They must not be used any more."""
        with self._changed:
            self._wire = self._kill = self._output = None

    def say(
        self, line: str | None, *, until: bytes = b"", timeout: float = 10.0, quiet: float = 0.5
    ) -> SessionAnswer:
        """See `protocol.Session.say`."""
        data = line_bytes(line, until, timeout, quiet)
        began = time.monotonic()
        with self._speaking:
            if self._closed:
                raise SandboxError("the session is closed")
            if line is not None:
                self._read(0)
            mark = self.heard.consumed if line is None else self.heard.total
            self._send(data, began + timeout)
            end = self._await(until, quiet, mark, began + timeout)
            if end == "exit" and self._fault:
                raise self._fault
            output, dropped = self.heard.take()
        seconds = time.monotonic() - began
        if end != "exit" or self._result is None:
            return SessionAnswer(output, end, dropped, seconds)
        limit = "" if self._result.limit == "output" else self._result.limit
        return SessionAnswer(output, end, dropped, seconds, self._result.returncode, limit)

    def _send(self, data: bytes, deadline: float) -> None:
        if len(self._unsent) + len(data) > LINE_BYTES:
            raise SandboxError(f"the process does not read: {len(self._unsent)} bytes for it still wait")
        self._unsent += data
        while (wire := self._wire) is not None and self._unsent:
            self._unsent = _send_some(wire, self._unsent)
            now = time.monotonic()
            if not self._unsent or now >= deadline:
                return
            self._wait_to_send(wire, min(LOOK_SECONDS, deadline - now))

    def _await(self, until: bytes, quiet: float, mark: int, deadline: float) -> str:
        """Waits for the end of the answer. Returns the reason, a value of `SessionAnswer.end`.

        mark: number of bytes of output before the answer.
        """
        heard = self.heard
        heard.awaited = until
        while True:
            with self._changed:
                if self._over:
                    return "exit"
                now = time.monotonic()
                fresh = heard.total - mark
                if until and fresh >= len(until) and heard.last.endswith(until):
                    return "prompt"
                due = deadline
                if not until and fresh:
                    if now >= heard.at + quiet:
                        return "quiet"
                    due = min(deadline, heard.at + quiet)
                if now >= deadline:
                    return "timeout"
                if self._output is None:
                    self._changed.wait(due - now)
                    continue
            self._read(due - now)

    def _read(self, seconds: float) -> None:
        """Reads the output of the process if it is a pipe. Waits at most `seconds` for output."""
        if self._output is None:
            return
        awake, ready = time.monotonic() + min(seconds, AWAKE_SECONDS), self._readable.poll(0)
        while not ready and time.monotonic() < awake:
            os.sched_yield()
            ready = self._readable.poll(0)
        if not ready and not self._readable.poll(min(LOOK_SECONDS, seconds) * 1000):
            return
        with self._changed:
            if self._output is None:
                return
            try:
                if not self.heard.read(self._output):
                    self._output = None  # the process closed its output, or has ended
            except BlockingIOError:
                return

    def _wait_to_send(self, wire: socket.socket, seconds: float) -> None:
        """Waits until `wire` accepts bytes.

        Also reads output, since a process may not read while its output is full.
        """
        poll, output = select.poll(), self._output
        with suppress(ValueError):  # our end is closed
            poll.register(wire, select.POLLOUT)
            if output is not None:
                poll.register(output, select.POLLIN)
            poll.poll(seconds * 1000)
        self._read(0)

    def close(self) -> None:
        """Kills the process and its descendants, and waits for their end. May be called twice."""
        with self._changed:
            self._closed = True
            if self._kill:
                self._kill()
        self._thread.join()
        if self._fault and not isinstance(self._fault, SandboxLost):
            raise self._fault


def line_bytes(line: str | None, until: bytes, timeout: float, quiet: float) -> bytes:
    """Encodes a line and its newline for sending.

    Raises ValueError for arguments that `protocol.Session.say` refuses.
    """
    data = b"" if line is None else as_bytes(line) + b"\n"
    if len(data) > LINE_BYTES:
        raise ValueError(f"a line of {len(data)} bytes; expected at most {LINE_BYTES}")
    if len(until) > PROMPT_BYTES:
        raise ValueError(f"a prompt of {len(until)} bytes; expected at most {PROMPT_BYTES}")
    for name, seconds in (("timeout", timeout), ("quiet", quiet)):
        if not 0 < seconds <= LONGEST_SECONDS:
            raise ValueError(f"{name} is {seconds} s; expected more than 0 and at most {LONGEST_SECONDS:g}")
    return data


def _send_some(wire: socket.socket, data: bytes) -> bytes:
    """Sends as much of `data` as possible without blocking, and returns the unsent rest.

    Returns b"" if the socket is closed.
    """
    try:
        return data[wire.send(data, socket.MSG_DONTWAIT) :]
    except BlockingIOError:
        return data
    except (OSError, ValueError):  # one end is closed
        return b""
