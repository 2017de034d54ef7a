"""Differences of two versions of a file, as difflib tells them, in linear time; lines of file tools."""

import difflib
import random

import pytest

from swelab.agents.debugger import line_changes
from swelab.agents.debugger.debugger import rewrite, view
from swelab.agents.debugger.line_changes import changes, diff_lines
from swelab.agents.debugger.task_files import TaskFiles


def rebuilt(before, after):
    """Returns the new version, made from the old one and the changes."""
    made, old = [], 0
    for start, end, new, new_end in changes(before, after):
        made += [*before[old:start], *after[new:new_end]]
        old = end
    return made + list(before[old:])


def versions(seed, words):
    rng = random.Random(seed)
    before = [rng.choice(words) for _ in range(rng.randrange(60))]
    after = list(before)
    for _ in range(rng.randrange(6)):
        place = rng.randrange(len(after) + 1)
        after[place : place + rng.randrange(4)] = rng.choices(words, k=rng.randrange(4))
    return before, after


@pytest.mark.parametrize("small", [line_changes.SMALL, 0])
@pytest.mark.parametrize("words", [["a"], ["a", "b"], [str(n) for n in range(200)]])
def test_changes_make_the_new_version_of_the_old(monkeypatch, small, words):
    monkeypatch.setattr(line_changes, "SMALL", small)
    for seed in range(200):
        before, after = versions(seed, words)
        assert rebuilt(before, after) == after


@pytest.mark.parametrize(
    "edit",
    [lambda x: [*x[:4], "new", *x[4:]], lambda x: x[:3] + x[5:], lambda x: ["0", *x, "9"], lambda x: []],
)
def test_a_diff_is_that_of_difflib(edit):
    before = [f"line {n}" for n in range(12)]
    for old, new in ((before, edit(before)), (edit(before), before)):
        theirs = difflib.unified_diff(old, new, "a/x.py", "b/x.py", lineterm="")
        assert list(diff_lines(old, new, "x.py")) == list(theirs)
    assert list(diff_lines(before, before, "x.py")) == []


def test_far_changes_are_hunks_of_their_own():
    before = [f"line {n}" for n in range(40)]
    after = [*before[:2], "x", *before[3:20], "y", *before[21:27], "z", *before[28:]]
    theirs = difflib.unified_diff(before, after, "a/x.py", "b/x.py", lineterm="")
    assert list(diff_lines(before, after, "x.py")) == list(theirs)


class Line(str):
    """A line that counts how often it is compared or hashed."""

    count = 0

    def __eq__(self, other):
        Line.count += 1
        return str.__eq__(self, other)

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        Line.count += 1
        return str.__hash__(self)


@pytest.mark.parametrize("kind", ["equal", "two kinds", "every other", "other order"])
def test_the_work_grows_with_the_lines(kind):
    work = []
    for size in (2000, 4000):
        before = [Line("0,") for _ in range(size)]
        if kind == "equal":
            after = [*before[:5], Line("1,"), *before[6:]]
        elif kind == "two kinds":
            before = [Line(n % 2) for n in range(size)]
            after = [Line(n % 3 % 2) for n in range(size)]
        elif kind == "every other":
            before = [Line(n) for n in range(size)]
            after = [Line(n if n % 2 else "new") for n in range(size)]
        else:
            before = [Line(n) for n in range(size)]
            after = before[::-1]
        Line.count = 0
        assert rebuilt(before, after) == after
        work.append(Line.count)
    assert work[1] < 3 * work[0] and work[1] < 40 * 4000


class Folder:
    """The files of a sandbox."""

    def __init__(self, **files):
        self.files = files

    def get(self, path, most):
        return self.files[path]

    def put(self, path, content):
        self.files[path] = content


class Pdb:
    """A debugger without a session, and without breakpoints."""

    breakpoints = ()

    def move_breakpoints(self, path, before, after):
        return ""


def test_a_lone_cr_ends_a_line_for_view_and_for_rewrite():
    folder = Folder(**{"m.py": b"a = 'x\ry'\nb = 2\nc = 3\r\nd = 4"})
    files = TaskFiles(folder)
    shown = view(files, Pdb(), 50, "m.py", 0, 0, True).split("\n")
    assert shown == ["m.py, lines 1 to 5 of 5:", "a = 'x", "y'", "b = 2", "c = 3\r", "d = 4"]
    told, changed = rewrite(files, Pdb(), "m.py", 3, 3, "b = 22")
    assert changed and folder.files["m.py"] == b"a = 'x\ry'\nb = 22\nc = 3\r\nd = 4"
    assert "-b = 2\n+b = 22" in told and "@@ -1,5 +1,5 @@" in told


def test_an_empty_file_and_a_last_line_without_an_end():
    files = TaskFiles(Folder(empty=b"", one=b"x"))
    assert view(files, Pdb(), 9, "empty", 0, 0, True) == "empty is empty."
    assert view(files, Pdb(), 9, "one", 0, 0, True) == "one, lines 1 to 1 of 1:\nx"
