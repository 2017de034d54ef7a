"""Breakpoints between sessions: parsed from hostile reports, moved with edits, set on executable lines."""

import pytest

from swelab.agents.debugger.pdb_session import MOST, Breakpoint, better_line, move, read_breakpoints

BEFORE = ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("after", "places"),
    [
        (["new", "a", "b", "c", "d"], {1: 2, 2: 3, 4: 5}),
        (["a", "x", "c", "d"], {2: 2, 3: 3}),
        (["a", "x", "y", "d"], {2: 2, 3: 3, 4: 4}),
        (["a", "x", "d"], {1: 1, 2: 2, 3: None, 4: 3}),
        (["a", "d"], {1: 1, 2: None, 3: None, 4: 2}),
        ([], {1: None, 4: None}),
    ],
)
def test_a_breakpoint_stays_with_its_line(after, places):
    wanted = [Breakpoint(n, "/f", n, "x > 1", True, False, 3, "g") for n in places]
    other = Breakpoint(9, "/other", 2)
    kept, gone = move([*wanted, other], "/f", BEFORE, after)
    assert {each.number: each.line for each in kept} == {n: to for n, to in places.items() if to} | {9: 2}
    assert [each.number for each in gone] == [n for n, to in places.items() if to is None]
    same = ("x > 1", True, False, 3, "g")
    assert all(
        (each.condition, each.temporary, each.enabled, each.ignore, each.function) == same
        for each in kept
        if each.number != 9
    )


def test_a_report_is_not_trusted():
    good = Breakpoint(1, "/f", 2, "x").plain()
    wrong = [None, 3, {}, good | {"line": "2"}, good | {"more": 1}, good | {"enabled": 1}, [good]]
    assert read_breakpoints([*wrong, good]) == [Breakpoint(1, "/f", 2, "x")]
    assert read_breakpoints("x") == read_breakpoints({"a": 1}) == []
    assert len(read_breakpoints([good] * 999)) == MOST


SOURCE = '''# a comment
import os

def f(a,
      b):
    """What it does."""
    # why
    return a


class C: pass


async def g():
    "only words"
'''


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (0, ("lines count from 1", 2)),
        (1, ("line 1 is a comment", 2)),
        (2, None),
        (3, ("line 3 is blank", 4)),
        (4, ("line 4 only defines a function", 8)),
        (5, None),
        (7, ("line 7 is a comment", 8)),
        (8, None),
        (11, None),
        (14, ("line 14 only defines a function", 15)),
        (99, ("the file has 15 lines", 15)),
    ],
)
def test_where_pdb_would_not_stop(line, told):
    assert better_line(SOURCE, line) == told


def test_what_cannot_be_parsed_is_pdb_s_to_judge():
    assert better_line("def f(:", 1) is None and better_line("x\0", 1) is None
    assert better_line("", 1) == ("the file has 0 lines", 0)
    assert better_line("", 0) == ("lines count from 1", 0)
