"""The script that replaces lines of functions."""

import difflib

import pytest

from swelab.models.chat.scripted_functions import repair_of, replacement
from swelab.records.task_records import Task

BEFORE = ["def f(a):", "    b = a - 1", *[f"    c{i} = {i}" for i in range(9)], "    return a", ""]
AFTER = [
    "def f(a):",
    "    b = a + 1",
    *[f"    c{i} = {i}" for i in range(9)],
    "    b += 1",
    "    return b",
    "",
]


def patch(old, new, above=2):
    """A patch of m.py, where the function begins below `above` lines."""
    texts = [[f"{line}\n" for line in ["# x"] * above + lines] for lines in (old, new)]
    return "".join(difflib.unified_diff(*texts, "a/m.py", "b/m.py", n=1))


@pytest.mark.parametrize("is_bug", [True, False])
def test_repair_of_a_function_in_two_places(is_bug):
    text = patch(AFTER, BEFORE) if is_bug else patch(BEFORE, AFTER)
    assert text.count("@@ -") == 2
    task = Task(patch=text, **({} if is_bug else {"version": "repaired"}))
    assert task.is_bug == is_bug
    assert repair_of(task, 3, BEFORE) == AFTER
    assert repair_of(task, 3, [line.replace("return", "yield") for line in BEFORE]) == []
    assert repair_of(task, 4, BEFORE) == []


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (["a", "X", "a", "c"], "-b\n+X"),
        (["a", "b", "X", "c"], "-b\n-a\n+b\n+X"),
        (["b", "a", "c"], "-a"),
        (["a", "b", "a", "c", "X"], "-c\n+c\n+X"),
        (["X", "b", "a", "Y"], "-a\n+X\n-c\n+Y"),
    ],
)
def test_replacement_names_lines_whose_first_place_is_meant(new, text):
    assert replacement(["a", "b", "a", "c"], new) == text
