"""Candidates: diffs that git applies, seeded order, each bug in one side only."""

import subprocess
from pathlib import Path

import pytest

from swelab.tasks.forge.candidates import candidates, read_sources, rejects, seeded_order, with_companions
from swelab.tasks.forge.operators import OPERATORS
from swelab.tasks.forge.source import Edit, Source

HERE = Path(__file__).resolve().parent
REAL = HERE.parents[3] / "swelab" / "jobs" / "journal.py"


@pytest.fixture
def real() -> Source:
    return Source("swelab/jobs/journal.py", REAL.read_bytes())


def test_diffs_apply_with_git_and_reverse(real, tmp_path):
    file = tmp_path / real.path
    file.parent.mkdir(parents=True)
    found, _ = seeded_order([real], OPERATORS, 0)
    assert len({candidate.op for candidate in found}) >= 8
    for candidate in found[:40]:
        file.write_bytes(real.data)
        for flags, expected in ([], real.apply(candidate.edits)), (["-R"], real.data):
            subprocess.run(
                ["git", "apply", *flags, "-"], input=candidate.patch.encode(), cwd=tmp_path, check=True
            )
            assert file.read_bytes() == expected


def test_combined_bugs_change_different_lines_of_one_function(real, tmp_path):
    found, _ = seeded_order([real], OPERATORS, 0)
    combined = list(with_companions(found, {real.path: real}, 3, 0))
    assert [c.function for c in combined] == [c.function for c in found]
    assert {c.op == "combined" for c in combined} == {True, False}
    file = tmp_path / real.path
    file.parent.mkdir(parents=True)
    for alone, candidate in list(zip(found, combined))[:40]:
        assert set(alone.edits) <= set(candidate.edits)
        assert (alone == candidate) == (candidate.op != "combined")
        lines = [real.line_of(edit.start) for edit in candidate.edits]
        assert lines == sorted(lines)
        file.write_bytes(real.data)
        subprocess.run(["git", "apply", "-"], input=candidate.patch.encode(), cwd=tmp_path, check=True)
        assert file.read_bytes() == real.apply(candidate.edits)


def test_a_diff_changes_only_the_lines_it_names(real):
    for candidate in candidates(real, ["compare_change", "const_off_by_one"]):
        assert len(candidate.before) == len(candidate.after) == 1
        assert candidate.before != candidate.after


def test_order_is_a_function_of_the_seed(real):
    first, _ = seeded_order([real], OPERATORS, 0)
    again, _ = seeded_order([real], OPERATORS, 0)
    other, _ = seeded_order([real], OPERATORS, 1)
    assert first == again
    assert first != other
    assert {c.bug for c in first} == {c.bug for c in other}


def test_operators_take_turns(real):
    found, _ = seeded_order([real], OPERATORS, 0)
    kinds = len({candidate.op for candidate in found})
    assert len({candidate.op for candidate in found[:kinds]}) == kinds


def test_a_bug_that_two_functions_could_have_is_left_out():
    text = "def f(a):\n    x = 1\n    y = 2\n    z = 3\n    a += x\n    x = 1\n    y = 2\n    return a\n"
    twice = Source("m.py", (text + "\n\n" + text.replace("def f", "def g")).encode())
    found, ambiguous = seeded_order([twice], ["op_change"], 0)
    assert (found, ambiguous) == ([], 1)


def test_a_last_line_without_newline_is_left_out():
    lines = "def f(a):\n    a += 1\n" + "    a.x()\n" * 6 + "    return a - 1"
    found = list(candidates(Source("m.py", lines.encode()), ["op_change"]))
    assert [c.before for c in found] == [("a += 1",)]


def test_syntax_and_no_change_are_told_apart():
    module = Source("m.py", b"def f(a):\n    return (a)\n")
    [candidate] = candidates(module, ["return_remove"])
    assert rejects(module, candidate) == ""
    broken = type(candidate)(**{**vars(candidate), "edits": (Edit(4, 5, "1"),)})
    same = type(candidate)(**{**vars(candidate), "edits": (Edit(21, 24, "a"),)})
    assert rejects(module, broken) == "syntax"
    assert rejects(module, same) == "no_change"


def test_only_targets_are_read(tmp_path):
    for name in ("pack/a.py", "pack/sub/b.py", "tests/test_a.py", "setup.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x = 1\n")
    assert list(read_sources(tmp_path, ["pack/*"])) == ["pack/a.py", "pack/sub/b.py"]
