"""Python values as plain data: equal values give equal data, and no value causes an error or endless work."""

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import re
from pathlib import PurePosixPath

import pytest

from swelab.witness.emitted import is_data
from swelab.witness.inside.canonical_data import MAX_NODES, Canon, digest


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Slotted:
    __slots__ = ("_shown", "__hidden")

    def __init__(self):
        self._shown, self.__hidden = 1, 2


class Bag:
    def __init__(self, *items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __iter__(self):
        return iter(self.items)

    def __contains__(self, item):
        return item in self.items


class Hostile(str):
    """Lies in every method that is called."""

    def __repr__(self):
        raise SystemError

    def __iter__(self):
        raise MemoryError


MADE = [
    None, True, 7, -(2**70), 1.5, float("nan"), "text", "\udc80", b"\x00", bytearray(b"a"), [1,
    [2]], (1,), {3, 1}, frozenset("ab"), {"a": {"b": 1}}, collections.OrderedDict(a=1),
    collections.deque([1]), Colour.RED, Point(1), Slotted(), Bag(1, 2), int, len, json, range(3),
    decimal.Decimal("1.10"), datetime.date(2026, 1, 2), re.compile("a"), re.match("a", "a"),
    {}.keys(), ValueError("a", 1), PurePosixPath("a/b"), Ellipsis, object(), iter([]), 3 + 4j,
    pytest.approx(1.0), lambda: 1, Point(1).__eq__, list[int],
]  # fmt: skip


@pytest.mark.parametrize("value", MADE, ids=lambda value: type(value).__name__)
def test_values_are_data_that_the_host_accepts(value):
    data = Canon().of(value)
    assert is_data(data), data
    assert json.loads(json.dumps(data)) == data


@pytest.mark.parametrize("one, other", [
    ({1, 2, 3}, {3, 2, 1}), (Point(1), Point(1, 0)), (Hostile("a"), Hostile("a")), (Slotted(), Slotted()),
    ("made <A object at 0x7f8812ab>", "made <A object at 0x7fe4bc9012ab>"),
])  # fmt: skip
def test_equal_values_are_said_alike(one, other):
    assert Canon().of(one) == Canon().of(other) != ["opaque", "error RuntimeError"]


@pytest.mark.parametrize("one, other", [
    (1, True), (1, 1.0), ("1", 1), ([1], (1,)), (Point(1), Point(2)), (Bag(1), Bag(2)), ("a", b"a"),
    ({"a": 1, "b": 2}, collections.OrderedDict(a=1, b=2)), (ValueError("a"), ValueError("b")),
    (Hostile("a"), "a"),
])  # fmt: skip
def test_different_values_are_not(one, other):
    assert Canon().of(one) != Canon().of(other)


def test_slots_are_read_by_their_mangled_names():
    assert Canon().of(Slotted())[2] == [["__hidden", ["i", "2"]], ["_shown", ["i", "1"]]]


def test_a_digest_does_not_depend_on_the_order_of_a_dict():
    one, other = (Canon().of({"a": {"x": 1, "y": 2}, "b": 2}), Canon().of({"b": 2, "a": {"y": 2, "x": 1}}))
    assert one != other and digest(one) == digest(other)


def test_large_deep_and_circular_values_end():
    circular = [1]
    circular.append(circular)
    assert Canon().of(circular) == ["l", [["i", "1"], ["cycle", 1]]]
    deep = []
    for _ in range(5000):
        deep = [deep]
    for value in (list(range(10**6)), "x" * 10**7, b"x" * 10**7, deep, {n: str(n) for n in range(10**5)}):
        canon = Canon()
        assert len(json.dumps(canon.of(value))) < 2_000_000 and canon.nodes <= MAX_NODES + 1
