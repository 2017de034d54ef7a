"""Relations on data agree with Python's or are undecided. Hostile data are read in linear time."""

import collections
import enum
import json
import operator
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from pathlib import Path, PurePosixPath

import pytest

from swelab.records.witness_records import Slot, WitnessManifest
from swelab.witness.asserted import relation
from swelab.witness.emitted import read
from swelab.witness.inside.canonical_data import Canon
from swelab.witness.relations import contains, equal, matches, order_holds, truth
from tests.growth import TIMES, growth


class Price(enum.IntEnum):
    LOW, HIGH = 1, 2


class Money(enum.IntEnum):
    LOW = 1


class Plain(enum.Enum):
    LOW = 1


class Word(enum.StrEnum):
    A = "a"


VALUES = [
    None, True, False, 0, 1, 1.0, 2, -1, 2**80, 0.1, float("nan"), "", "a", "ab", b"", b"a", [],
    [1], [1.0], [1, 2], (), (1,), {}, {"a": 1}, {"a": 1.0}, {1: "a"}, {True: "a"}, set(), {1},
    {1.0}, {1, 2}, frozenset([1]), collections.OrderedDict(a=1), [[1], {"x": (None,)}], [[True],
    {"x": (None,)}], range(3), Ellipsis, 3 + 0j, range(3, 3), range(0), Price.LOW, Price.HIGH, Money.LOW,
    Plain.LOW, Word.A, Decimal(1), Decimal("1.00"), Decimal("0.5"), Decimal("1E+999999"), Fraction(1, 2), 0.5,
    {Price.LOW}, {Price.LOW: "a"}, [Price.LOW], PurePosixPath("a"), Path("a"), datetime(2020, 1, 1),
    datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
]  # fmt: skip


@pytest.mark.parametrize("one", VALUES, ids=repr)
def test_relations_are_python_s_or_unknown(one):
    said = Canon().of(one)
    assert truth(said) in (bool(one), None)
    for other in VALUES:
        theirs = Canon().of(other)
        if one is not other:
            assert equal(said, theirs) in (one == other, None), other
        for op, python in (("<", operator.lt), (">=", operator.ge)):
            try:
                assert order_holds(said, theirs, op) in (python(one, other), None)
            except (TypeError, InvalidOperation):
                assert order_holds(said, theirs, op) is None
        try:
            held = one in other
        except (TypeError, ValueError):
            continue
        assert contains(theirs, said) in (held, None)


@pytest.mark.parametrize("one, other, held", [
    ([1, 2], [1.0, True + 1], True), ({"a": [1]}, {"a": [2]}, False), ({1, 2.0}, {1.0, 2}, True),
    ("a", b"a", False), (0.3, pytest.approx(0.1 + 0.2), True), ([0.3, 1], pytest.approx([0.31, 1]), False),
    ({"a": 0.3}, pytest.approx({"a": 0.1 + 0.2}), True), (None, 0, False), ("x" * 9000, "x" * 9000, True),
    (Price.LOW, 1, True), (Money.LOW, Price.LOW, True), (Price.HIGH, 1, False), ("a", Word.A, True),
    (Decimal("1.00"), 1, True), (Decimal("1.00"), Decimal(1), True), (Decimal("0.5"), 0.5, True),
    (Fraction(1, 2), 0.5, True), (Fraction(1, 2), Decimal("0.5"), True), ([Price.LOW], [1], True),
])  # fmt: skip
def test_equality_that_can_be_said_is_said(one, other, held):
    assert equal(Canon().of(one), Canon().of(other)) is held


def test_objects_cannot_be_compared_on_data():
    assert equal(["O", "pkg.A", [], None], ["O", "pkg.A", [], None]) is None
    assert equal(["opaque", "pkg.A"], ["i", "1"]) is None


def test_patterns_are_searched_as_the_test_does():
    error = Canon().of(ValueError("no currency in '12'"))
    assert matches(Canon().of("no c.rr"), error, "search") is True
    assert matches(Canon().of("currency"), Canon().of("a currency"), "match") is False
    assert matches(Canon().of("("), Canon().of("a"), "search") is None


@pytest.mark.parametrize("asserts, ops, negated, said, cut, held", [
    ("compare", ["=="], False, [5], [None, 5], True),
    ("compare", ["<", "<="], False, [1, 2, 2], [], True),
    ("compare", ["=="], True, [5], [None, 5], False),
    ("compare", ["startswith"], False, ["abc"], [None, "ab"], True),
    ("compare", ["~"], False, [1.00000001], [None, 1.0], True),
    ("compare", ["count"], False, [[1, 2]], [None, [2, 1]], True),
    ("compare", ["helper"], False, [1], [None, 1], None),
    ("isinstance", [], False, [True], [None, int], True),
    ("truth", [], True, [[]], [], True),
    ("raises", [], False, [ValueError("abc")], [None, (KeyError, ValueError), "b"], True),
    ("raises", [], False, [ValueError("abc")], [None, KeyError], False),
    ("raises", [], False, [None], [None, KeyError], False),
    ("warns", [], False, [[(UserWarning, "abc")]], [None, UserWarning, "c$"], True),
])  # fmt: skip
def test_what_a_slot_asserts(asserts, ops, negated, said, cut, held):
    width = max(len(said), len(cut))
    mask = (
        [at < len(cut) and cut[at] is not None for at in range(width)]
        if asserts != "raises"
        else [False, True, True]
    )
    slot = Slot(slot=0, test="", line=0, asserts=asserts, ops=ops, negated=negated, cut=mask)
    data = [Canon().of(each) for each in said]
    assert relation(slot, data, [None if each is None else Canon().of(each) for each in cut]) is held


def test_what_was_cut_is_never_taken_from_the_patch():
    slot = Slot(slot=0, test="", line=0, asserts="compare", ops=["=="], cut=[False, True])
    assert relation(slot, [["i", "6"], ["i", "6"]], [None, ["i", "5"]]) is False
    assert relation(slot, [["i", "6"], ["i", "6"]], []) is None


def value(data):
    return json.dumps([0, "value", 0, 0, 1, "v", [data]])


HOSTILE = {
    "many lists": lambda size: value(["l", [["l", []]] * size]),
    "deep lists": lambda size: f'[0,"value",0,0,1,"v",{"[" * size}{"]" * size}]',
    "a dictionary": lambda size: value(["d", [[["s", str(n)], ["i", "9" * 100]] for n in range(size // 20)]]),
    "a long number": lambda size: f'[0,"value",0,0,1,"v",[{"9" * size}]]',
    "values": lambda size: "\n".join(
        json.dumps([n, "value", 0, n, 1, "v", [["i", "x"]]]) for n in range(size // 10)
    ),
    "cases": lambda size: "\n".join(json.dumps([n, "case", n, "a::b["]) for n in range(size // 5)),
}


@pytest.mark.full
@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_text_is_read_in_linear_time(kind):
    manifest = WitnessManifest(tests={}, unformed={}, questions={}, slots=[], sight={})
    assert growth(lambda text: read(text.encode(), manifest), HOSTILE[kind], 20_000) < TIMES
