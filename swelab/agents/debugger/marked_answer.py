"""Reads the whole answer of a debugger whose prompt ends with a mark, even if output follows the mark."""

import time
from dataclasses import dataclass

from swelab.sandbox.protocol import Session

SLICE_SECONDS = 1.0
"""Seconds between checks for the mark.

The checks are necessary because output of a thread or a child process may follow the mark.
"""


@dataclass(frozen=True)
class Answer:
    """The answer of a debugger. output: the printed bytes. end: prompt (the mark was printed), timeout or
    exit. returncode, limit: exit code, and the limit that caused the exit. They are set only after an
    exit."""

    output: bytes
    end: str
    returncode: int | None = None
    limit: str = ""


def ask(session: Session, line: str | None, mark: bytes, seconds: float, most: int) -> Answer:
    """Sends a line and waits for the two marks around the debugger's report. most: number of bytes to keep
    from the start of the answer, and from its end. Raises the errors of `Session.say`."""
    deadline = time.monotonic() + seconds
    heard, said = b"", line
    while True:
        left = max(0.01, deadline - time.monotonic())
        found = session.say(said, until=mark, timeout=min(SLICE_SECONDS, left))
        heard, said = _truncate(heard + found.output, most), None
        if found.end == "exit":
            return Answer(heard, "exit", found.returncode, found.limit)
        if found.end == "prompt" or heard.count(mark) >= 2:
            return Answer(heard, "prompt")
        if time.monotonic() >= deadline:
            return Answer(heard, "timeout")


def _truncate(heard: bytes, most: int) -> bytes:
    if len(heard) <= 2 * most:
        return heard
    dropped = len(heard) - 2 * most
    return heard[:most] + f"\n[{dropped} bytes dropped]\n".encode() + heard[-most:]
