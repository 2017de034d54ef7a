"""The sides of the split, and the proof that they share nothing."""

import json
import subprocess
import sys

import pytest

from swelab.configs.experiment import load_experiment
from swelab.configs.trained_on import training_subsets
from swelab.records import InputError
from swelab.records.task_records import Task
from swelab.tasks.disjoint import check_disjoint
from swelab.tasks.identity import change
from swelab.tasks.split import bug_hash, side_of
from tests.conftest import run_program

HEADER = "diff --git a/m.py b/m.py\n--- a/m.py\n+++ b/m.py\n"
PATCH = HEADER + "@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 2\n"


def task(name: str, **changes) -> dict:
    return Task.of(
        {
            "instance_id": f"o__p.{name}",
            "repo": "swelab/o__p",
            "repo_recipe": "p",
            "patch": PATCH.replace("1", name),
            "problem_statement": "",
            "FAIL_TO_PASS": ["t"],
            "PASS_TO_PASS": [],
            "image_name": "i",
            "function": f"m.py::{name}",
            "bug": name,
            **changes,
        }
    )


def test_a_side_is_stable_and_depends_on_repository_and_function():
    assert [side_of("p", f"m.py::f{n}", 0.5) for n in range(6)] == [
        side_of("p", f"m.py::f{n}", 0.5) for n in range(6)
    ]
    sides = [side_of(repo, f"m.py::f{n}", 0.6) for repo in "pq" for n in range(500)]
    assert 0.55 < sides.count("heldout") / len(sides) < 0.65
    assert sides[:500] != sides[500:]


def test_shares_of_nothing_and_everything():
    names = [f"f{n}" for n in range(200)]
    assert {side_of("p", name, 0) for name in names} == {"train"}
    assert {side_of("p", name, 1) for name in names} == {"heldout"}


def test_a_larger_share_never_moves_a_function_to_train():
    for n in range(300):
        if side_of("p", f"f{n}", 0.3) == "heldout":
            assert side_of("p", f"f{n}", 0.6) == "heldout"


def test_a_bug_is_its_lines_not_its_place():
    moved = PATCH.replace("-1,2 +1,2", "-7,2 +7,2").replace("return 1\n", "return 1  \n")
    assert bug_hash(moved) == bug_hash(PATCH)
    assert bug_hash(PATCH.replace("m.py", "n.py")) != bug_hash(PATCH)
    assert bug_hash(PATCH.replace("return 2", "return 3")) != bug_hash(PATCH)


def test_disjoint_sides_are_counted():
    verdict = check_disjoint([task("a"), task("b")], [task("c")])
    assert verdict == {
        "disjoint": True,
        "train": {"instance_id": 2, "function": 2, "bug": 2, "repo_commit": 0},
        "heldout": {"instance_id": 1, "function": 1, "bug": 1, "repo_commit": 0},
    }


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (task("c", function="m.py::a"), r"1 by function \(p:m.py::a\)"),
        (task("c", bug="a"), r"1 by bug \(a\)"),
        (task("c", instance_id="o__p.a"), r"1 by instance_id \(o__p.a\)"),
    ],
)
def test_overlaps_are_listed(other, message):
    with pytest.raises(InputError, match=message):
        check_disjoint([task("a")], [other])


def test_rows_of_a_published_set_are_compared_by_patch():
    kept = [name for name in task("a") if name not in ("bug", "function")]
    left, right = (Task.of({name: task(n)[name] for name in kept}) for n in "ab")
    check_disjoint([left], [right])
    with pytest.raises(InputError, match="by bug"):
        check_disjoint([left], [right | {"patch": left["patch"]}])


FIX = HEADER + "@@ -4,3 +4,3 @@\n def f():\n-    a = 1\n-    return a\n+    b = 2\n+    return b\n c\n"
BUG = HEADER + "@@ -4,3 +4,3 @@\n def f():\n-    b = 2\n-    return b\n+    a = 1\n+    return a\n c\n"


def published(name: str, repo: str, patch: str, **changes) -> dict:
    row = Task.of({k: v for k, v in task(name).items() if k not in ("bug", "function", "repo_recipe")})
    return row | {"repo": repo, "patch": patch, **changes}


def issue(name: str, repo: str = "Own/Pack", commit: str = "0123ABCD" + 32 * "f", patch: str = FIX) -> dict:
    return published(name, repo, patch, base_commit=commit, test_patch=PATCH)


def mirrored(name: str, repo: str = "swesmith/own__pack.0123abcd", patch: str = BUG) -> dict:
    return published(name, repo, patch, base_commit=40 * "e")


def test_a_mirrored_pull_request_is_the_issue_whose_fix_it_takes_back():
    assert change(mirrored("a")) == change(issue("b"))
    assert change(mirrored("a", patch=FIX)) != change(issue("b"))
    with pytest.raises(InputError, match="1 by bug"):
        check_disjoint([mirrored("a", repo="swesmith/own__pack.99999999")], [issue("b")])


def test_the_commit_that_published_tasks_start_from_is_not_shared():
    other = PATCH.replace("m.py", "n.py")
    train, heldout = [mirrored("a", patch=other)], [issue("b")]
    with pytest.raises(InputError, match=r"1 by repo_commit \(own/pack@0123abcd\)"):
        check_disjoint(train, heldout)
    verdict = check_disjoint(train, heldout, same_commit="report")
    assert verdict["disjoint"] and verdict["same_commit"] == ["own/pack@0123abcd"]
    assert verdict["heldout"]["repo_commit"] == 1
    check_disjoint(train, [issue("b", commit=40 * "1")])
    check_disjoint(train, [issue("b", repo="other/pack")])
    with pytest.raises(InputError, match="1 by instance_id"):
        check_disjoint([issue("b")], [issue("b", commit="")], same_commit="report")


def test_an_experiment_trains_on_its_experts_subsets():
    assert training_subsets(load_experiment("demo")) == ["drill-train", "forge-train"]


def test_the_script_writes_a_verdict_or_one_line(tmp_path):
    for name, rows in (("train", [task("a")]), ("held", [task("b")])):
        (tmp_path / f"{name}.json").write_text(json.dumps(rows))

    def run(heldout: str) -> subprocess.CompletedProcess:
        return run_program(
            [sys.executable, "-m", "scripts.check_disjoint", "--train", tmp_path / "train.json"]
            + ["--heldout", tmp_path / f"{heldout}.json", "--output", tmp_path / "verdict.json"]
        )

    assert run("held").returncode == 0
    assert json.loads((tmp_path / "verdict.json").read_text())["heldout"]["bug"] == 1
    same = run("train")
    assert same.returncode == 2
    assert same.stderr.count("\n") == 1 and same.stderr.startswith("error: train and heldout overlap")
