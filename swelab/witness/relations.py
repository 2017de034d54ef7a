"""Evaluates Python's relations on canonical data: True, False, or None if the data do not determine the
result.
"""

import decimal
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Any

from swelab.witness.emitted import Data
from swelab.witness.inside import canonical_data

Truth = bool | None
digest: Callable[[Data], Data] = canonical_data.digest
NUMBERS = frozenset("ifb")
SEQUENCES = frozenset(("l", "t", "q"))
OPAQUE = frozenset(("opaque", "big", "cycle", "cut"))
OBJECTS = OPAQUE | {"O", "R", "A", "K", "E", "F", "M", "v"}
_SEVERAL = OBJECTS | {"r"}
"""Kinds of data that may equal data in another form. So data of these kinds cannot be compared as keys."""
_PLAIN = frozenset(("n", "s", "y", "l", "t", "d", "S", "i", "f", "b"))
_MAX_SEARCHED = 8_000  # maximum number of characters of a text that is searched


def has(data: Any, kinds: Iterable[str]) -> bool:
    """Returns whether the data contain, at any depth, data of one of these kinds."""
    if not isinstance(data, list):
        return False
    first = data[0] if data else None
    return (isinstance(first, str) and first in kinds) or any(has(each, kinds) for each in data)


def margins(data: Any) -> list[Any]:
    """Returns the tolerances of all approximations in the data, in order. They are compared with the
    tolerances of the gold patch, since a patch could choose larger tolerances."""
    if not isinstance(data, list):
        return []
    own = [data[2:]] if data[:1] == ["A"] and len(data) == 4 else []
    return own + [found for each in data for found in margins(each)]


def number(data: Data) -> int | float:
    """Returns the number that the data represent."""
    if data[0] == "b":
        return int(data[1])
    if data[0] == "i":
        return int(data[1], 16 if "x" in data[1] else 10)
    return float(data[1])


_WRITTEN: dict[str, tuple[re.Pattern[str], Callable[..., Any]]] = {
    "Decimal": (re.compile(r"\w+\('([^']+)'\)"), decimal.Decimal),
    "Fraction": (re.compile(r"\w+\((-?\d+), (\d+)\)"), lambda over, under: Fraction(int(over), int(under))),
    "complex": (re.compile(r"(.+)"), complex),
}
_LONGEST = 2_000  # maximum number of characters of a number


def written_number(data: Data) -> Any:
    """Returns the number that plain data, a Decimal, a Fraction or a complex number represents, or None for
    other data. Raises ValueError, ArithmeticError."""
    if data[0] in NUMBERS:
        return number(data)
    if data[0] != "r" or data[1] not in _WRITTEN or len(data[2]) > _LONGEST:
        return None
    pattern, kind = _WRITTEN[data[1]]
    found = pattern.fullmatch(data[2])
    return kind(*found.groups()) if found else None


def all_of(truths: Iterable[Truth]) -> Truth:
    """Returns True if all values are True, False if any value is False, otherwise None (unknown)."""
    held: Truth = True
    for each in truths:
        if each is False:
            return False
        held = None if each is None else held
    return held


def negation(truth: Truth) -> Truth:
    """Returns the negation of a truth value, or None for None (unknown)."""
    return None if truth is None else not truth


def equal(a: Data, b: Data) -> Truth:
    """Returns the result of `a == b`."""
    if a[0] == "A" or b[0] == "A":
        return _near(a, b) if a[0] == "A" else _near(b, a)
    if a == b:
        return None if has(a, OPAQUE | {"O"}) else not (a[0] == "f" and a[1] == "nan")
    if a[0] == "h" or b[0] == "h":
        one, other = (each if each[0] == "h" else digest(each) for each in (a, b))
        return True if one == other else None
    if a[0] in OBJECTS or b[0] in OBJECTS:
        return None
    if a[0] == "e" or b[0] == "e":
        return _equal_members(a, b)
    numbers = [written_number(each) for each in (a, b)]
    if None not in numbers:
        return bool(numbers[0] == numbers[1])
    if a[0] != b[0]:
        return False if a[0] in _PLAIN and b[0] in _PLAIN else None
    if a[0] in SEQUENCES:
        return len(a[1]) == len(b[1]) and all_of(map(equal, a[1], b[1]))
    if a[0] == "S":
        return None if has(a, _SEVERAL) or has(b, _SEVERAL) else set(map(_key, a[1])) == set(map(_key, b[1]))
    if a[0] == "d":
        return _equal_dicts(a, b)
    return _equal_reprs(a, b) if a[0] == "r" else a[1] == b[1]


def _member_value(data: Data) -> Data:
    """Returns the number or text of a member of IntEnum or a similar class. Other data are returned
    unchanged."""
    return data[3] if data[0] == "e" and len(data) > 3 else data


def _equal_members(a: Data, b: Data) -> Truth:
    """Returns the result of `==` if one side is an enum member. A member of IntEnum or a similar class is
    compared as a number or text."""
    if a[0] == b[0] and a[1:3] == b[1:3]:
        return True
    plain = [_member_value(each) for each in (a, b)]
    if all(each[0] == "e" for each in plain):
        return False
    return None if any(each[0] == "e" for each in plain) else equal(*plain)


def _equal_reprs(a: Data, b: Data) -> Truth:
    """Returns the result of `==` on values recorded by their repr, or None if equal values may have different
    reprs."""
    if a[1] != b[1] or a[1] == "typing":
        return None
    if a[2] == b[2]:
        return True
    several = a[1] in ("range", "PurePath", "slice") or any("tzinfo" in each[2] for each in (a, b))
    return None if several else False


def _equal_dicts(a: Data, b: Data) -> Truth:
    if len(a[1]) != len(b[1]):
        return False
    if a[-1] == b[-1] == "ordered":
        return all_of(held for one, other in zip(a[1], b[1]) for held in map(equal, one, other))
    theirs = {_key(key): value for key, value in b[1]}
    if not len(a[1]) == len(theirs) == len({_key(key) for key, _ in a[1]}):
        return None  # if keys could be equal, one correct entry would match several
    missing = None if has([key for key, _ in a[1] + b[1]], _SEVERAL) else False
    found: list[Truth] = []
    for key, value in a[1]:
        other = theirs.get(_key(key))
        found.append(equal(value, other) if other is not None else missing)
    return all_of(found)


def _key(data: Any) -> str:
    """Returns a text that is the same for equal numbers, as for keys of sets and dicts."""
    return json.dumps(_plain(data), sort_keys=True)


def _plain(data: Any) -> Any:
    if not isinstance(data, list):
        return data
    if data[:1] == ["e"] and len(data) == 4:
        data = data[3]
    if len(data) > 1 and isinstance(data[0], str) and data[0] in NUMBERS and isinstance(data[1], str | bool):
        value = number(data)
        whole = isinstance(value, float) and math.isfinite(value) and value == int(value)
        return ["number", str(int(value) if whole else value)]
    return [_plain(each) for each in data]


def _near(approximate: Data, other: Data) -> Truth:
    """Returns the result of `==` with pytest.approx, for numbers and for sequences and dicts of numbers."""
    _, expected, relative, absolute = approximate
    rel = number(relative) if relative[0] in NUMBERS else 1e-6
    least = number(absolute) if absolute[0] in NUMBERS else 1e-12

    def near(one: Data, two: Data) -> Truth:
        if one[0] in NUMBERS and two[0] in NUMBERS:
            x, y = number(one), number(two)
            return x == y or (math.isfinite(x) and abs(x - y) <= max(rel * abs(x), least))
        if one[0] in SEQUENCES and two[0] in SEQUENCES:
            return len(one[1]) == len(two[1]) and all_of(map(near, one[1], two[1]))
        if one[0] == two[0] == "d":
            theirs = {_key(key): value for key, value in two[1]}
            found = [(value, theirs.get(_key(key))) for key, value in one[1]]
            return len(one[1]) == len(two[1]) and all_of(
                other is not None and near(v, other) for v, other in found
            )
        return equal(one, two)

    return near(expected, other)


def truth(data: Data) -> Truth:
    """Returns the result of `bool(data)`."""
    if data[0] == "n":
        return False
    if (value := written_number(data)) is not None:
        return bool(value != 0)
    if data[0] == "e" and len(data) > 3:
        return truth(data[3])
    if data[0] in ("s", "y", "l", "t", "d", "S", "q"):
        return len(data[1]) > 0
    return True if data[0] in ("T", "F", "M", "e", "E") or data[:2] == ["r", "Match"] else None


def identical(a: Data, b: Data) -> Truth:
    """Returns the result of `a is b` for values that exist only once, such as None and classes. For other
    values, returns False if they differ, otherwise None."""
    single = {"n", "b", "T", "M", "e"}
    if a[0] in single or b[0] in single:
        if a[0] in OPAQUE or b[0] in OPAQUE:
            return False if {a[0], b[0]} & {"n", "b"} else None
        return a == b
    return False if equal(a, b) is False else None


def order_holds(a: Data, b: Data, op: str) -> Truth:
    """Returns the result of `a < b` or another order operator."""
    compare: Callable[[Any, Any], bool] = {
        "<": operator.lt,
        "<=": operator.le,
        ">": operator.gt,
        ">=": operator.ge,
    }[op]
    a, b = _member_value(a), _member_value(b)
    numbers = [written_number(each) for each in (a, b)]
    if None not in numbers:
        try:
            return bool(compare(*numbers))
        except (ArithmeticError, TypeError):  # the data are not numbers, or one is complex
            return None
    if a[0] == b[0] == "s":
        return compare(a[1], b[1])
    if a[0] == b[0] == "S" and not has(a, _SEVERAL) and not has(b, _SEVERAL):
        return compare(set(map(_key, a[1])), set(map(_key, b[1])))
    return None


def contains(container: Data, member: Data) -> Truth:
    """Returns the result of `member in container`."""
    if container[0] == member[0] and container[0] in ("s", "y"):
        return member[1] in container[1]
    if container[0] in SEQUENCES or container[0] == "S":
        items = container[1]
    elif container[0] == "d":
        items = [key for key, _ in container[1]]
    elif container[0] == "v" and container[1] != "dict_items":
        items = container[2]
    else:
        return None
    found = [equal(each, member) for each in items]
    return True if True in found else None if None in found else False


def matches(pattern: Data, text: Data, how: str) -> Truth:
    """Returns whether a pattern of the test is found in a text. The search may take long, so call it with a
    time limit."""
    if text[0] == "E":
        text = text[4]
    if text[0] != "s" or len(text[1]) > _MAX_SEARCHED:
        return None
    flags = 0
    if pattern[0] == "s":
        regex = pattern[1]
    elif pattern[:2] == ["r", "Pattern"] and (
        told := re.fullmatch(r"\((.*), (\d+)\)", pattern[2], re.DOTALL)
    ):
        import ast

        regex, flags = ast.literal_eval(told[1]), int(told[2])
    else:
        return None
    try:
        return getattr(re, how)(regex, text[1], flags) is not None
    except (re.error, TypeError, ValueError, RecursionError):
        return None


def close(a: Data, b: Data, more: Mapping[str, str]) -> Truth:
    """Returns whether unittest's assertAlmostEqual holds. more: its `places` or `delta`, as text."""
    if a[0] not in NUMBERS or b[0] not in NUMBERS:
        return None
    x, y = number(a), number(b)
    try:
        if "delta" in more:
            return x == y or abs(x - y) <= float(more["delta"])
        return x == y or round(abs(x - y), int(more.get("places", "7"))) == 0
    except (ValueError, OverflowError):
        return None
