"""The one-way record of a watched run, as it comes out of the sandbox among the lines of the log.

Each line has a number and a seal under a key that the writing process forgets with that line: nobody can
take a line back, write it anew, or leave one out without its being seen.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from swelab.grading.evidence import Observed
from swelab.sandbox.bounded_output import BoundedOutput

TOLD_BYTES = 24 << 20
"""Bytes of a run's output that the record may take beside the log."""

STATES = {
    "whole": "the observer told all, from start to end",
    "broken": "the observer's record has a line that is not its own, comes twice or comes after the end",
    "gap": "lines of the observer's record are missing",
    "cut": "lines of the observer's record are in the middle of a log that is too long to be kept",
    "unended": "the observer fell silent",
    "unstarted": "the observer never spoke",
}
"""What each state of a record means."""

_BAD = ("failed", "error")
_SAID_WITH: dict[str, list[type]] = {
    "start": [],
    "report": [str, str],
    "call": [str, str],
    "marked": [list],
    "changed": [str],
    "power": [str],
    "fault": [dict],
    "end": [int],
}
"""Types of what stands beside each first word."""


@dataclass(frozen=True)
class Told:
    """state: of STATES; lines: what was told up to the first flaw; log: the output without the record."""

    state: str
    lines: list[list[Any]]
    log: bytes


def heard(output: bytes, nonce: str, key: str, log_bytes: int) -> Told:
    """Parts a run's output into its log, of which the first and last halves of `log_bytes` are kept, and the
    record of the run with that nonce and key."""
    line = re.compile(rb"\x1e%s ([0-9a-f]{32}) ((\d{1,9}) [+.][ -~]{0,3500})\x1f" % nonce.encode())
    pieces: dict[int, tuple[bytes, bytes]] = {}
    log, place, state = BoundedOutput(log_bytes), 0, ""
    for match in line.finditer(output):
        log.add(output[place : match.start()])
        place = match.end()
        state = "broken" if int(match[3]) in pieces else state
        pieces[int(match[3])] = match[1], match[2]
    log.add(output[place:])
    lines = []
    for words in _opened(pieces, bytes.fromhex(key)):
        if words is None:
            state = "broken"
        else:
            lines.append(words)
    return Told(state or _state(pieces, lines), lines, log.value())


def _opened(pieces: dict[int, tuple[bytes, bytes]], key: bytes) -> Iterator[list[Any] | None]:
    """What the lines say, in their order, up to the first that is missing; None for one that is not whole
    or not under its key, after which nothing comes."""
    number, body = 0, list[bytes]()
    while number in pieces:
        seal, text = pieces[number]
        if hashlib.sha256(key + text).hexdigest()[:32].encode() != seal:
            yield None
            return
        part = text.partition(b" ")[2]
        body.append(part[1:])
        if part[:1] == b".":
            try:
                words = json.loads(b"".join(body))
            except (ValueError, RecursionError):
                words = None
            yield words if _is_the_observer_s(words) else None
            body = []
        number, key = number + 1, hashlib.sha256(key).digest()


def _is_the_observer_s(words: Any) -> bool:
    """Whether words are such as the observer says: code that found the channel may say others."""
    if not isinstance(words, list) or not words or not isinstance(words[0], str):
        return False
    kind, *rest = words
    if [type(each) for each in rest] != _SAID_WITH.get(kind):
        return False
    told = rest[0].values() if kind == "fault" else rest[0] if kind == "marked" else ()
    named = kind != "fault" or {"error", "traceback", "patched"} == rest[0].keys()
    return named and all(isinstance(each, str) for each in told)


def _state(pieces: dict[int, tuple[bytes, bytes]], lines: list[list[Any]]) -> str:
    if not pieces:
        return "unstarted"
    if max(pieces) != len(pieces) - 1:
        return "gap"
    ends = [place for place, words in enumerate(lines) if words[0] == "end"]
    if not ends:
        return "unended"
    return "whole" if ends[0] == len(lines) - 1 else "broken"


def observed(lines: list[list[Any]], junit: str | None) -> Observed:
    """The record as evidence. Of a test the worst that was told stands; nothing told is taken back."""
    seen: dict[str, Any] = {"exit": -1, "junit": junit, "outcomes": {}, "raised": {}}
    seen |= {"marked": [], "changed": [], "powers": [], "faults": []}
    for kind, *words in lines:
        if kind == "report":
            test, word = words
            before = seen["outcomes"].get(test)
            seen["outcomes"][test] = before if before in _BAD else word
        elif kind == "call":
            test, raised = words
            seen["raised"][test] = seen["raised"].get(test) or raised
            if not raised:
                seen["outcomes"].setdefault(test, "passed")
        elif kind == "marked":
            seen["marked"] = words[0]
        elif kind == "end":
            seen["exit"] = words[0]
        elif kind in ("changed", "power", "fault"):
            seen[{"power": "powers", "fault": "faults"}.get(kind, kind)].append(words[0])
    return Observed.of(seen)
