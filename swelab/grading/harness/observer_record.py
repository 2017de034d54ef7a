"""Reads the observer's one-way record of a run, whose lines are mixed with the lines of the log.

Each line has a number and a seal (a keyed hash). The process deletes the seal's key after it has written the
line. So the reader detects lines that were removed, replaced or omitted.
"""

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from swelab.grading.evidence import ObserverReport
from swelab.sandbox.bounded_output import BoundedOutput

RECORD_BYTES = 24 << 20
"""Bytes of a run's output that are kept for the record, in addition to the bytes of the log."""

STATES = {
    "whole": "the observer reported from start to end",
    "broken": "the observer's record has a line that is not its own, comes twice or comes after the end",
    "gap": "lines of the observer's record are missing",
    "cut": "lines of the observer's record are in the middle of a log that is too long to be kept",
    "unended": "the observer fell silent",
    "unstarted": "the observer never spoke",
}
"""Meanings of the states of a record."""

_BAD = ("failed", "error")
_FIELDS: dict[str, list[type]] = {
    "start": [],
    "report": [str, str],
    "call": [str, str],
    "skip": [str, str],
    "marked": [list],
    "changed": [str],
    "power": [str],
    "fault": [dict],
    "end": [int],
}
"""Maps the first field of an observation to the types of the remaining fields."""


@dataclass(frozen=True)
class ObserverRecord:
    """state: one of STATES.

    observations: all observations before the first missing or malformed line. log: the output without the
    record.
    """

    state: str
    observations: list[list[Any]]
    log: bytes


def read_record(output: bytes, nonce: str, key: str, log_bytes: int) -> ObserverRecord:
    """Separates a run's output into its log and the observer's record under this nonce and key.

    log_bytes: how many bytes of the log are kept, half from its start and half from its end.
    """
    line = re.compile(rb"\x1e%s ([0-9a-f]{32}) ((\d{1,9}) [+.][ -~]{0,3500})\x1f" % nonce.encode())
    pieces: dict[int, tuple[bytes, bytes]] = {}
    log, place, state = BoundedOutput(log_bytes), 0, ""
    for match in line.finditer(output):
        log.add(output[place : match.start()])
        place = match.end()
        state = "broken" if int(match[3]) in pieces else state
        pieces[int(match[3])] = match[1], match[2]
    log.add(output[place:])
    observations = []
    for each in _read_observations(pieces, bytes.fromhex(key)):
        if each is None:
            state = "broken"
        else:
            observations.append(each)
    return ObserverRecord(state or _state(pieces, observations), observations, log.value())


def _read_observations(pieces: dict[int, tuple[bytes, bytes]], key: bytes) -> Iterator[list[Any] | None]:
    """Yields the observations in order, up to the first missing line.

    Yields None for a malformed observation. Yields None and stops at a line with a wrong seal.
    """
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
                found = json.loads(b"".join(body))
            except (ValueError, RecursionError):
                found = None
            yield found if _is_observation(found) else None
            body = []
        number, key = number + 1, hashlib.sha256(key).digest()


def _is_observation(value: Any) -> bool:
    """Returns whether a value has the form of an observation.

    Hostile code that finds the output pipe may write other values.
    """
    if not isinstance(value, list) or not value or not isinstance(value[0], str):
        return False
    kind, *rest = value
    if [type(each) for each in rest] != _FIELDS.get(kind):
        return False
    texts = rest[0].values() if kind == "fault" else rest[0] if kind == "marked" else ()
    named = kind != "fault" or {"error", "traceback", "patched"} == rest[0].keys()
    return named and all(isinstance(each, str) for each in texts)


def _state(pieces: dict[int, tuple[bytes, bytes]], observations: list[list[Any]]) -> str:
    if not pieces:
        return "unstarted"
    if max(pieces) != len(pieces) - 1:
        return "gap"
    ends = [place for place, each in enumerate(observations) if each[0] == "end"]
    if not ends:
        return "unended"
    return "whole" if ends[0] == len(observations) - 1 else "broken"


def collect_observations(observations: list[list[Any]], junit: str | None) -> ObserverReport:
    """Returns the observations as evidence. If a test is reported several times, the worst outcome counts."""
    observation: dict[str, Any] = {"exit": -1, "junit": junit, "outcomes": {}, "raised": {}, "skippers": {}}
    observation |= {"marked": [], "changed": [], "powers": [], "faults": []}
    for kind, *fields in observations:
        if kind == "report":
            test, word = fields
            before = observation["outcomes"].get(test)
            observation["outcomes"][test] = before if before in _BAD else word
        elif kind == "call":
            test, raised = fields
            observation["raised"][test] = observation["raised"].get(test) or raised
            if not raised:
                observation["outcomes"].setdefault(test, "passed")
        elif kind == "skip":
            observation["skippers"][fields[0]] = fields[1]
        elif kind == "marked":
            observation["marked"] = fields[0]
        elif kind == "end":
            observation["exit"] = fields[0]
        elif kind in ("changed", "power", "fault"):
            observation[{"power": "powers", "fault": "faults"}.get(kind, kind)].append(fields[0])
    return ObserverReport.of(observation)
