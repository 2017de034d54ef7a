"""Decides whether a test's assertion holds for the values that a patch's code emitted.

First, the expected values that were removed from the question are inserted again.
"""

from collections.abc import Sequence
from typing import Any

from swelab.records.witness_records import Slot
from swelab.witness.emitted import Data
from swelab.witness.relations import (
    Truth,
    all_of,
    close,
    contains,
    equal,
    identical,
    matches,
    negation,
    order_holds,
    truth,
)

CANNOT_SAY = (ArithmeticError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that hostile data can cause in a comparison, through numbers of many digits or deep nesting."""

_BASES = {
    "n": ["builtins.NoneType"],
    "b": ["builtins.bool", "builtins.int"],
    "i": ["builtins.int"],
    "f": ["builtins.float"],
    "s": ["builtins.str"],
    "y": ["builtins.bytes"],
    "l": ["builtins.list"],
    "t": ["builtins.tuple"],
    "d": ["builtins.dict"],
    "S": ["builtins.set", "builtins.frozenset"],
}


def relation(slot: Slot, emitted: Sequence[Data], cut: Sequence[Data | None]) -> Truth:
    """Returns whether the assertion of a slot holds, or None if the data do not determine that.

    emitted: values of the patch. cut: the expected values, with None for operands that the patch emits.
    """
    try:
        held = _relation(slot, _fill(slot, emitted, cut))
    except CANNOT_SAY:
        return None
    return negation(held) if slot.negated else held


def _fill(slot: Slot, emitted: Sequence[Data], cut: Sequence[Data | None]) -> list[Data]:
    unknown: Data = ["opaque", "cut"]
    full = []
    for at, is_cut in enumerate(slot.cut):
        value = (
            (cut[at] if at < len(cut) else None) if is_cut else (emitted[at] if at < len(emitted) else None)
        )
        full.append(value if value is not None else unknown)
    return full


def _relation(slot: Slot, full: list[Data]) -> Truth:
    if slot.asserts == "compare":
        pairs = zip(slot.ops, full, full[1:])
        return all_of(_operator(op, left, right, slot) for op, left, right in pairs)
    if slot.asserts == "truth":
        return truth(full[0])
    if slot.asserts == "isinstance":
        return _isinstance(full[0], full[1])
    if slot.asserts == "raises":
        return _raises(full)
    if slot.asserts == "warns":
        return _warns(full)
    return None


def _operator(op: str, left: Data, right: Data, slot: Slot) -> Truth:
    if op in ("==", "!="):
        return equal(left, right) if op == "==" else negation(equal(left, right))
    if op in ("is", "is not"):
        return identical(left, right) if op == "is" else negation(identical(left, right))
    if op in ("in", "not in"):
        return contains(right, left) if op == "in" else negation(contains(right, left))
    if op in ("<", "<=", ">", ">="):
        return order_holds(left, right, op)
    if op in ("search", "match", "fullmatch"):
        return matches(right, left, op)
    if op in ("startswith", "endswith"):
        return _edge(left, right, op)
    if op == "~":
        return close(left, right, slot.more or {})
    if op == "count" and left[0] in ("l", "t", "S") and right[0] in ("l", "t", "S"):
        return sorted(map(str, left[1])) == sorted(map(str, right[1])) or None
    return None


def _edge(text: Data, edge: Data, op: str) -> Truth:
    edges = edge[1] if edge[0] == "t" else [edge]
    if text[0] not in ("s", "y") or any(each[0] != text[0] for each in edges):
        return None
    return bool(getattr(text[1], op)(tuple(each[1] for each in edges)))


def _isinstance(value: Data, classes: Data) -> Truth:
    names = _class_names(classes)
    if value[0] == "E":
        bases = value[2]
    elif value[0] in ("O", "R", "e"):
        return True if value[1] in names else None
    elif value[0] in _BASES:
        bases = _BASES[value[0]] + [each for each in value[2:3] if isinstance(each, str)]
    else:
        return None
    if not names:
        return None
    return True if set(names) & {*bases, "builtins.object"} else None


def _raises(full: list[Data]) -> Truth:
    error, expected, pattern = (*full, ["n"], ["n"])[:3]
    if error[0] != "E":
        return False
    names = _class_names(expected)
    if names and not set(names) & {*error[2], "builtins.BaseException", "builtins.object"}:
        return False
    return matches(pattern, error, "search") if pattern[0] in ("s", "r") else (True if names else None)


def _warns(full: list[Data]) -> Truth:
    warnings, pattern = full[0], (*full, ["n"], ["n"])[2]
    if warnings[0] != "l" or any(each[0] != "t" or len(each[1]) != 2 for each in warnings[1]):
        return None
    if not warnings[1]:
        return False
    if pattern[0] not in ("s", "r"):
        return True
    found = [matches(pattern, each[1][1], "search") for each in warnings[1]]
    return True if True in found else None if None in found else False


def _class_names(data: Data) -> list[str]:
    if data[0] == "T":
        return [data[1]]
    if data[0] == "t":
        return [name for each in data[1] for name in _class_names(each)]
    return []


def is_strong(slot: Slot, cut: Sequence[Any]) -> bool:
    """Returns whether an assertion that holds is as strong as equality.

    This is so if exactly one operand is an expected value.
    """
    if slot.asserts in ("raises", "warns"):
        return any(each is not None for each in cut)
    one_cut = sum(slot.cut) == 1 and len(slot.cut) == 2 and any(each is not None for each in cut)
    return (
        slot.asserts == "compare"
        and slot.ops[:1] in (["=="], ["~"], ["count"])
        and one_cut
        and not slot.negated
    )


def public_text(values: Sequence[Data]) -> str:
    """Returns the classes, public attributes and items of objects as one text.

    Returns "" if an object has only a class.
    """
    texts = []
    for each in values:
        if each[0] != "O":
            texts.append(repr(each))
            continue
        public = [pair for pair in each[2] if not pair[0].startswith("_")]
        if not public and not each[3]:
            return ""
        texts.append(repr([each[1], public, each[3]]))
    return " ".join(texts)
