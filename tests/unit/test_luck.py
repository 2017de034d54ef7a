"""Tests that the lint of the gate refuses, and the report that `make test-full` prints."""

import ast

import pytest

from tests.full import table
from tests.luck import faults, is_full


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        ("time.sleep(1)", "sleeps"),
        ("await asyncio.sleep(0)", "sleeps"),
        ("def inner():\n        sleep(1)", "sleeps"),
        ("assert time.monotonic() < 5", "asserts"),
        ("start = time.process_time()\n    assert f() - start < 1", "asserts"),
        ("assert resource.getrusage(0).ru_maxrss < 9", "asserts"),
    ],
)
def test_a_clock_decides_no_test_of_the_gate(code, fault):
    (test,) = ast.parse(f"async def test_x():\n    {code}\n").body
    assert [what.startswith(fault) for _, what in faults(test)] == [True]


def test_what_is_no_verdict_is_allowed():
    code = "def test_x():\n    until(lambda: time.monotonic() > 1)\n    assert timed == 2\n"
    (test,) = ast.parse(code).body
    assert not list(faults(test))


@pytest.mark.parametrize("mark", ["@pytest.mark.full\ndef f(): pass", "pytestmark = [pytest.mark.full]"])
def test_tests_outside_the_gate_may(mark):
    (statement,) = ast.parse(mark).body
    assert is_full(statement)


def test_who_fails_twice_with_the_same_code_is_named():
    failed = [("a", ["x", "y"]), ("a", ["x"]), ("b", ["y"])]
    runs = [{"code": code, "failed": names} for code, names in failed]
    assert table(runs).splitlines() == [
        "failed  of 3 runs",
        "     2  x  twice with the same code: mend or delete it",
        "     2  y",
    ]
