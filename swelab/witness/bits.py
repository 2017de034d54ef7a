"""Estimates how hard a value is to guess for someone who reads the question and can run the code with the
bug.

A value that is visible in the question costs the logarithm of the number of visible values. If a value is
partly equal to the value with the bug, only the difference counts. The constants are estimates.
"""

import math
from collections.abc import Set

from swelab.witness.emitted import Data
from swelab.witness.relations import NUMBERS, SEQUENCES, number
from swelab.witness.visible_constants import hash_of

MOST, BARE_TRUTH, RAISED = 64.0, 0.3, 3.0
_CHARACTER, _BYTE = 2.5, 2.0


_LIKELY = "ValueError TypeError KeyError AttributeError IndexError RuntimeError".split()


def exception_bits(name: str) -> float:
    """Returns the bits of an exception's class.

    The number is small, since most code raises one of a few classes.
    """
    kind = name.removeprefix("builtins.")
    return math.log2(2 + _LIKELY.index(kind)) if kind in _LIKELY else RAISED


def surprise(gold: Data, bug: Data | None, sight: Set[str]) -> float:
    """Returns the bits of information in `gold` for someone who knows `bug`, the value with the bug."""
    if bug == gold:
        return 0.0
    whole = bits(gold, sight)
    if bug is None or bug[0] != gold[0] or gold[0] not in ("l", "t", "q", "d", "s", "i", "O", "E"):
        return whole
    return min(whole, _difference(gold, bug, sight))


def _difference(gold: Data, bug: Data, sight: Set[str]) -> float:
    kind = gold[0]
    if kind == "s":
        return _changed_text(gold[1], bug[1])
    if kind == "i":
        return 1 + 2 * math.log2(min(abs(number(gold) - number(bug)), 2**64) + 1)
    if kind == "E":
        return RAISED
    ours, theirs = (gold[2], bug[2]) if kind == "O" else (gold[1], bug[1])
    if kind in ("d", "O"):
        if [key for key, _ in ours] != [key for key, _ in theirs]:
            return MOST
        ours, theirs = [value for _, value in ours], [value for _, value in theirs]
    if len(ours) != len(theirs) or not ours:
        return MOST
    position = math.log2(len(ours))
    differing = [(one, other) for one, other in zip(ours, theirs) if one != other]
    return sum(position + surprise(one, other, sight) for one, other in differing) or MOST


def _changed_text(gold: str, bug: str) -> float:
    """Returns the bits of the position at which the texts differ, plus the bits of the new text there."""
    start = 0
    while start < min(len(gold), len(bug)) and gold[start] == bug[start]:
        start += 1
    end = 0
    while end < min(len(gold), len(bug)) - start and gold[-1 - end] == bug[-1 - end]:
        end += 1
    return 1 + math.log2(len(gold) + 1) + _CHARACTER * (len(gold) - start - end)


def bits(data: Data, sight: Set[str]) -> float:
    """Estimates the bits of information in a value from its size.

    sight: hashes of the values that a guesser can see. Such a value has at most the bits that the choice of
    one visible value has.
    """
    own = min(MOST, _size(data, sight))
    return min(own, math.log2(len(sight) + 1)) if hash_of(data) in sight else own


def _size(data: Data, sight: Set[str]) -> float:
    kind = data[0]
    if kind in ("n", "b"):
        return 1
    if kind == "i":
        value = min(abs(number(data)), 2**64)
        return 2 if value <= 2 else 1 + 2 * math.log2(value + 1)
    if kind in NUMBERS:
        return 2 + 3 * len(data[1].replace(".0", ""))
    if kind == "s":
        return 1 + _CHARACTER * len(data[1])
    if kind == "y":
        return 1 + _BYTE * len(data[1]) / 2
    if kind in SEQUENCES or kind == "S":
        return 1 + sum(bits(each, sight) for each in data[1][:64])
    if kind == "d":
        return 1 + sum(bits(each, sight) for pair in data[1][:64] for each in pair)
    if kind == "O":
        held = [value for _, value in data[2][:64]] + (data[3] or [])[:64]
        return 1 + sum(bits(each, sight) for each in held)
    if kind == "E":
        return RAISED
    if kind == "h":
        return MOST
    return (
        0 if kind in ("opaque", "big", "cycle", "cut") else 4 if kind in ("T", "F", "M", "e", "r", "R") else 2
    )
