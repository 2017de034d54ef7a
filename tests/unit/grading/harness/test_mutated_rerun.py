"""Honest code must fail spoiled tests."""

import pytest

from swelab.grading.harness.mutated_rerun import break_tests, complaint

SOURCE = """
import unittest
import pytest


def helper(x):
    assert x


def test_equal():
    value = 4
    assert value == 4
    assert value


def test_truth():
    assert helper(1) is None


def test_raises():
    with pytest.raises(ValueError):
        int("x")


def test_returns():
    if True:
        return
    assert 1 == 1


@pytest.mark.parametrize("a, b", [(1, 1), (2, 2)])
def test_many(a, b):
    assert (
        a ==
        b
    )


class TestOne(unittest.TestCase):
    def test_unit(self):
        self.assertEqual(2, 1 + 1)

    def test_other(self):
        self.assertEqual(2, 1 + 1)
"""
NAMES = {
    "test_equal": ("test_equal",),
    "test_truth": ("test_truth",),
    "test_raises": ("test_raises",),
    "test_many": ("test_many",),
    "test_unit": ("TestOne", "test_unit"),
}


def outcome(source, name):
    """Returns whether a test of a source passes when run like pytest."""
    space = {}
    exec(compile(source, "t.py", "exec"), space)
    arguments = (1, 1) if name == "test_many" else ()
    try:
        if name == "test_unit":
            space["TestOne"](name).test_unit()
        else:
            space[name](*arguments)
    except Exception:
        return False
    return True


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_a_spoiled_test_cannot_pass(name, seed):
    assert outcome(SOURCE, name)
    text, done = break_tests(SOURCE, [NAMES[name]], seed)
    assert done == [NAMES[name]] and text != SOURCE
    assert not outcome(text, name)
    others = set(NAMES) - {name, "test_truth"}  # that one calls a function whose assertion is spoiled too
    assert all(outcome(text, other) for other in others)


def test_what_cannot_be_spoiled_for_certain_is_left():
    assert break_tests(SOURCE, [("test_returns",), ("nowhere",), ("TestOne", "gone")], 0) == (SOURCE, [])
    assert break_tests("(", [("test_x",)], 0) == ("(", [])


ANY = """
class Any:
    def __eq__(self, other):
        return type(other) is not object

    def __lt__(self, other):
        return True

    __gt__ = __lt__


def equal(one, two):
    pass


def compare(value):
    assert value == 4


def test_x():
    value, other = Any(), 3
    assert other == 3
    {line}
    assert other
"""


@pytest.mark.parametrize(
    "line",
    [
        "assert value == 4",
        "assert [value, 1] == [4, 1]  # so",
        "assert {1: (value, 2)} == {1: (4, 2)}",
        "assert 'x' == value and other",
        "assert value in (1, 2)",
        "assert other < value",
        "for each in (1, 'a', b'', {}, (), [], set()):\n        assert each == value",
        "with open('/dev/null') as stream:\n        assert value == None or value == 4",
        "unittest.TestCase().assertEqual(4, value)",
        "unittest.TestCase().assertEqual(value, 4)",
        "compare(value)",
        "assert_equal(other, 4)",
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_objects_that_pretend_pass_a_spoiled_test(line, seed):
    source = "import unittest\n" + ANY.format(line=line) + "\n\nassert_equal = equal\n"
    text, done = break_tests(source, [("test_x",)], seed)
    assert done and outcome(source, "test_x")
    known = " or value == 4" in line  # a disjunction is not taken apart
    assert outcome(text, "test_x") is not known


def test_complaints():
    assert complaint(["t::a"], {"t::a": "failed"}) == ""
    assert "t::a passes" in complaint(["t::a"], {"t::a": "passed"})
    assert complaint(["t::a"], {}) == "no spoiled test ran"


def test_files_that_are_indented_by_tabs_are_spoiled():
    source = "class TestTabs:\n\tdef test_sum(self):\n\t\tvalue = 4\n\t\tassert value == 4\n"
    text, done = break_tests(source, [("TestTabs", "test_sum")], 1)
    compile(text, "test_tabs.py", "exec")
    assert done == [("TestTabs", "test_sum")]
    with pytest.raises(AssertionError):
        scope = {}
        exec(text, scope)
        scope["TestTabs"]().test_sum()


OVERLOOKS = """
class Table(dict):
    def __eq__(self, other):
        return hasattr(other, "keys") and list(other) == list(self)


def test_copy():
    table = Table(a=1, b=2)
    assert Table(table) == table
"""


def test_a_container_whose_equality_overlooks_values_is_no_forgery():
    """Packages have such classes. Their spoiled tests would still pass."""
    text, done = break_tests(OVERLOOKS, [("test_copy",)], 1)
    assert done and outcome(OVERLOOKS, "test_copy") and not outcome(text, "test_copy")
