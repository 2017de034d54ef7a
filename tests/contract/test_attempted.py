"""A subset that is chosen by a policy's success rate, in the real workflow: attempts, grades, lock."""

import os
import subprocess
import sys
from collections import Counter

import pytest
import yaml

from swelab.records import read_json, read_jsonl
from swelab.tasks.task_rows import read_tasks
from tests.e2e.clone import copy_repository, toolbox
from tests.e2e.dry_runs import rules_of

pytestmark = [pytest.mark.real, pytest.mark.full]
SOMETIMES = {
    "source": "attempted",
    "subset": "few",
    "policy": "tries",
    "at_least": 0.2,
    "at_most": 0.8,
    "order": "easy-first",
}
RECIPES = {
    "subsets/few": {
        "source": "drill",
        "repos": ["drill"],
        "side": "train",
        "heldout_share": 0.15,
        "limit": 12,
        "validate": {"gold_runs": 1, "together": True},
    },
    "policies/tries": {"kind": "scripted", "scaffold": "demo", "seed": 2, "wrong_edit": 0.25, "samples": 4},
    "subsets/sometimes": SOMETIMES,
    "subsets/too-fine": SOMETIMES | {"at_least": 0.3, "at_most": 0.4},
    "subsets/round": SOMETIMES | {"subset": "round"},
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    clone = tmp_path_factory.mktemp("attempted") / "clone"
    copy_repository(clone)
    for name, recipe in RECIPES.items():
        write(clone, name, recipe)
    return clone


def write(clone, name, recipe):
    (clone / f"configs/{name}.yaml").write_text(yaml.safe_dump(recipe))


def run(clone, target, *more):
    words = ["-m", "snakemake", "--cores", "2", *more, "--config", f"toolbox={toolbox()}", "--", target]
    return subprocess.run([sys.executable, *words], cwd=clone, capture_output=True, text=True)


def kept(clone):
    return [task.instance_id for task in read_tasks(clone / "results/tasks/sometimes.kept.json")]


def test_tasks_are_chosen_by_the_attempts_at_them(clone):
    done = run(clone, "results/tasks/sometimes.kept.json")
    assert done.returncode == 0, done.stderr[-3000:]
    grades = sorted((clone / "results/grades/tries/few").glob("*.jsonl"))
    assert len(grades) == 4
    solved = Counter[str]()
    for row in (row for path in grades for row in read_jsonl(path)):
        solved[row["instance_id"]] += row["resolved"]
    attempted = [task.instance_id for task in read_tasks(clone / "results/tasks/few.kept.json")]
    wanted = sorted((name for name in attempted if 1 <= solved[name] <= 3), key=lambda name: -solved[name])
    assert kept(clone) == wanted and 0 < len(wanted) < len(attempted)
    manifest = read_json(clone / "results/tasks/sometimes.manifest.json")
    for name in attempted:
        told = manifest["pass_rates" if name in wanted else "left_out"][name]
        reason = {0: "never_solved", 4: "always_solved"}.get(solved[name])
        assert told == ({"reason": reason} if reason else {}) | {"solved": solved[name], "attempts": 4}
    assert manifest["kept"] + sum(manifest["drops"].values()) == manifest["candidates"] == len(attempted)
    locks = [read_json(clone / f"results/tasks/{name}.lock.json") for name in ("few", "sometimes")]
    whole, part = ({row["instance_id"]: row for row in lock["kept"]} for lock in locks)
    assert part == {name: whole[name] for name in wanted} and locks[0]["settings"] == locks[1]["settings"]


def test_other_bounds_choose_anew_and_attempt_nothing(clone):
    write(clone, "subsets/sometimes", SOMETIMES | {"at_most": 1.0, "order": "kept"})
    before = kept(clone)
    planned = run(clone, "results/tasks/sometimes.kept.json", "-n")
    assert rules_of(planned.stdout) == {"choose_tasks": 1, "lock_chosen_tasks": 1}
    times = {path: os.stat(path).st_mtime_ns for path in (clone / "results/grades").rglob("*.jsonl")}
    done = run(clone, "results/tasks/sometimes.kept.json")
    assert done.returncode == 0, done.stderr[-3000:]
    attempted = [task.instance_id for task in read_tasks(clone / "results/tasks/few.kept.json")]
    now = kept(clone)
    assert set(before) < set(now) and now == [name for name in attempted if name in now]
    assert {path: os.stat(path).st_mtime_ns for path in times} == times
