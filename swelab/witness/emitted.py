"""Reads the output of a run of a question. The output is hostile, so all steps take linear time."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from swelab.records.witness_records import WitnessManifest
from swelab.witness.node_ids import case_of

MAX_BYTES, MAX_LINE, MAX_DEPTH = 16_000_000, 2_000_000, 80
Data = list[Any]
Key = tuple[int, int, str]
_NO_DATA: Data = ["opaque", "no data"]
_ITEMS = frozenset(("l", "t", "q", "S"))
_NAMED = _ITEMS | {"b", "i", "f"}  # the value is followed by at most a class name


@dataclass
class TestOutput:
    """The output of one test.

    values: maps (slot, occurrence, part) to the emitted value. outcome: how the test ended. parameters: the
    parameters in the test id.
    """

    values: dict[Key, list[Data]] = field(default_factory=dict)
    outcome: str = ""
    parameters: str = ""


def read(raw: bytes, manifest: WitnessManifest) -> dict[tuple[str, int], TestOutput]:
    """Parses the output of a run into emitted values by test.

    The keys are (node id of the function, number of the case). Reading stops at the first line that is no
    event or has not the next number. So no later line can replace an earlier line. If a value is emitted
    several times under one key, the first counts.
    """
    questions = {path.rpartition("/")[2]: base for path, base in manifest.questions.items()}
    owners = {slot.slot: slot.test for slot in manifest.slots}
    by_run: dict[tuple[str, int], TestOutput] = {}
    now = ("", 0)
    for number, text in enumerate(raw[:MAX_BYTES].split(b"\n")):
        event = _event(text, number)
        if event is None:
            break
        if event[1] == "case" and len(event) == 4 and isinstance(event[3], str):
            path, _, rest = event[3].partition("::")
            now = (questions.get(path.rpartition("/")[2], ""), _number(event[2]))
            test = by_run.setdefault(now, TestOutput())
            test.parameters = test.parameters or rest[len(rest.split("[")[0]) :]
        elif event[1] == "end" and len(event) == 4:
            test = by_run.setdefault(now, TestOutput())
            if test.outcome in ("", "passed"):
                test.outcome = event[3] if isinstance(event[3], str) else "?"
        elif event[1] == "value" and len(event) == 7 and _has_values(event):
            slot = _number(event[3])
            at = (now[0] or owners.get(slot, ""), _number(event[2]))
            key = (slot, _number(event[4]), event[5])
            test = by_run.setdefault(at, TestOutput())
            if key not in test.values:
                test.values[key] = [each if is_data(each) else _NO_DATA for each in event[6]]
    return by_run


def asked_cases(manifest: WitnessManifest, answers: bytes) -> dict[str, list[int]]:
    """Returns the numbers of the cases that a question's tests select, keyed by question file name.

    answers: output of a run of `Question.answers` with the gold patch. Files without such a case are absent.
    """
    cases = {(base, each.parameters): case for (base, case), each in read(answers, manifest).items()}
    names = {base: path.rpartition("/")[2] for path, base in manifest.questions.items()}
    found: dict[str, set[int]] = {}
    for test, base in manifest.tests.items():
        if (case := case_of(test, base, cases)) >= 0:
            found.setdefault(names[base], set()).add(case)
    return {name: sorted(numbers) for name, numbers in sorted(found.items())}


def by_case(raw: bytes) -> dict[str, list[Data]]:
    """Returns the events of each test, keyed by node id.

    The events are in order and have no numbers. The key "" maps to the events outside tests. The event that
    lists the needed files is excluded.
    """
    data: dict[str, list[Data]] = {}
    now = ""
    for number, text in enumerate(raw[:MAX_BYTES].split(b"\n")):
        event = _event(text, number)
        if event is None:
            break
        if event[1] == "case":
            now = str(event[-1])
        if event[1] != "needs":
            data.setdefault(now, []).append(event[1:])
    return data


def serialize(cases: Iterable[list[Data]]) -> bytes:
    """Serializes the events of cases in the format of a run's output."""
    events = [event for case in cases for event in case]
    lines = [json.dumps([number, *event], separators=(",", ":")) for number, event in enumerate(events)]
    return "".join(f"{line}\n" for line in lines).encode()


def needs(raw: bytes) -> tuple[list[str], list[str]] | None:
    """Returns (name patterns of test files, opened files and folders) that a run with the gold patch reports.

    Returns None if the run does not report them.
    """
    for text in reversed(raw.split(b"\n")[-3:]):
        event = json.loads(text) if text.startswith(b"[") else None
        if event and event[1] == "needs":
            return event[2], event[3]
    return None


def _event(text: bytes, number: int) -> Data | None:
    if not text or len(text) > MAX_LINE:
        return None
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return None
    is_next = isinstance(event, list) and len(event) > 3 and type(event[0]) is int and event[0] == number
    return event if is_next else None


def _has_values(event: Data) -> bool:
    return isinstance(event[5], str) and isinstance(event[6], list)


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1_000_000_000 else -1


def is_data(value: Any, depth: int = 0) -> bool:
    """Returns whether a value has the form of canonical data, so that code can process the value safely."""
    if not isinstance(value, list) or not value or not isinstance(value[0], str) or depth > MAX_DEPTH:
        return False
    kind, rest = value[0], value[1:]
    if kind in ("n", "cut"):
        return not rest
    if not rest:
        return False
    first = rest[0]
    if kind in _NAMED and not all(isinstance(each, str) for each in rest[1:]):
        return False
    if kind == "b":
        return type(first) is bool
    if kind in ("i", "f"):
        return isinstance(first, str) and len(first) < 20_000 and _is_number(kind, first)
    if kind in _ITEMS:
        return isinstance(first, list) and all(is_data(each, depth + 1) for each in first)
    if kind in ("d", "O"):
        pairs = first if kind == "d" else rest[1] if len(rest) > 2 else None
        return (
            isinstance(pairs, list)
            and all(_is_pair(each, kind, depth) for each in pairs)
            and _items(rest, kind, depth)
        )
    if kind == "E":
        classes = rest[1] if len(rest) == 4 else None
        named = isinstance(classes, list) and all(isinstance(each, str) for each in classes)
        return (
            named and isinstance(first, str) and is_data(rest[2], depth + 1) and is_data(rest[3], depth + 1)
        )
    if kind in ("A", "K"):
        return len(rest) == (3 if kind == "A" else 2) and all(is_data(each, depth + 1) for each in rest)
    if kind == "v":
        return (
            len(rest) == 2 and isinstance(rest[1], list) and all(is_data(each, depth + 1) for each in rest[1])
        )
    if kind == "e":
        named = isinstance(first, str) and len(rest) in (2, 3) and isinstance(rest[1], str)
        return named and (
            len(rest) == 2 or (is_data(rest[2], depth + 1) and rest[2][0] in ("i", "f", "s", "y"))
        )
    if kind == "F":
        return isinstance(first, str) and all(is_data(each, depth + 1) for each in rest[1:])
    if kind == "cycle":
        return type(first) is int and len(rest) == 1
    needed = {"s": 1, "y": 1, "T": 1, "M": 1, "r": 2, "R": 2, "h": 2, "opaque": 1, "big": 1}.get(kind, 99)
    return len(rest) >= needed and all(isinstance(each, str) for each in rest)


def _is_pair(value: Any, kind: str, depth: int) -> bool:
    if not isinstance(value, list) or len(value) != 2:
        return False
    named = isinstance(value[0], str) if kind == "O" else is_data(value[0], depth + 1)
    return named and is_data(value[1], depth + 1)


def _items(rest: Data, kind: str, depth: int) -> bool:
    if kind == "d":
        return all(isinstance(each, str) for each in rest[1:])
    items = rest[2]
    held = items is None or (isinstance(items, list) and all(is_data(each, depth + 1) for each in items))
    return held and isinstance(rest[0], str)


def _is_number(kind: str, text: str) -> bool:
    try:
        if kind == "f":
            float(text)
        elif text.lstrip("-").startswith("0x"):
            int(text, 16)
        else:
            return len(text) < 4000 and int(text) is not None
    except ValueError:
        return False
    return True
