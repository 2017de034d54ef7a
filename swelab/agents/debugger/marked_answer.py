"""The whole answer of a debugger whose prompt ends with a mark, also where others write behind the mark."""

import time
from dataclasses import dataclass

from swelab.sandbox.protocol import Session

SLICE_SECONDS = 1.0
"""So often is looked whether the mark has come, and something behind it: a thread's output, or a child's."""


@dataclass(frozen=True)
class Answer:
    """end: prompt (the mark came), timeout or exit; with exit its code, and the limit that ended it."""

    output: bytes
    end: str
    returncode: int | None = None
    limit: str = ""


def ask(session: Session, line: str | None, mark: bytes, seconds: float, most: int) -> Answer:
    """Says a line and waits for two marks, between which the debugger reports.

    most: bytes that are kept, of the head and the tail of the answer. Raises what `Session.say` raises.
    """
    deadline = time.monotonic() + seconds
    heard, said = b"", line
    while True:
        left = max(0.01, deadline - time.monotonic())
        found = session.say(said, until=mark, timeout=min(SLICE_SECONDS, left))
        heard, said = _bounded(heard + found.output, most), None
        if found.end == "exit":
            return Answer(heard, "exit", found.returncode, found.limit)
        if found.end == "prompt" or heard.count(mark) >= 2:
            return Answer(heard, "prompt")
        if time.monotonic() >= deadline:
            return Answer(heard, "timeout")


def _bounded(heard: bytes, most: int) -> bytes:
    if len(heard) <= 2 * most:
        return heard
    dropped = len(heard) - 2 * most
    return heard[:most] + f"\n[{dropped} bytes dropped]\n".encode() + heard[-most:]
