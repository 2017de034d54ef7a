"""Spoiled tests: honest code must fail them."""

import pytest

from swelab.grading.echo import complaint, spoiled

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
    """Whether a test of a source passes, run as pytest would."""
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
    text, done = spoiled(SOURCE, [NAMES[name]], seed)
    assert done == [NAMES[name]] and text != SOURCE
    assert not outcome(text, name)
    assert all(outcome(text, other) for other in NAMES if other != name)


def test_what_cannot_be_spoiled_for_certain_is_left():
    assert spoiled(SOURCE, [("test_returns",), ("nowhere",), ("TestOne", "gone")], 0) == (SOURCE, [])
    assert spoiled("(", [("test_x",)], 0) == ("(", [])


def test_an_object_that_equals_everything_passes_a_spoiled_equality():
    source = "class Any:\n    def __eq__(self, other):\n        return True\n\n\n"
    source += "def test_x():\n    assert Any() == 4\n"
    text, done = spoiled(source, [("test_x",)], 0)
    assert done and outcome(text, "test_x")


def test_complaints():
    assert complaint(["t::a"], {"t::a": "failed"}) == ""
    assert "t::a passes" in complaint(["t::a"], {"t::a": "passed"})
    assert complaint(["t::a"], {}) == "no spoiled test ran"
