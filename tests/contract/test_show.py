"""The records of an instance are printed, and the printed command runs it again."""

import hashlib
import json
import shlex
import sys

import pytest

from swelab.grading.grading_stage import grade_shard
from swelab.grading.show import PROGRAM, plain
from swelab.records import write_json, write_jsonl
from swelab.records.attempt_records import Prediction
from swelab.tasks.checkout import RepoStore, gold_patch
from tests.conftest import ROOT, run_program

pytestmark = pytest.mark.real
WRONG = """--- a/calc/core.py
+++ b/calc/core.py
@@ -1,3 +1,3 @@
 def add(a, b):
-    return a - b
+    return b - a
\x20
"""


def show(*words):
    """Runs scripts.show. Returns exit code, standard output and standard error."""
    done = run_program([sys.executable, "-m", "scripts.show", *map(str, words)], cwd=ROOT)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def results(tmp_path, repos_dir, task):
    """A results folder with two policies on one subset: one is right, the other is wrong."""
    results = tmp_path / "results"
    (results / "tasks").mkdir(parents=True)
    repos_dir.rename(results / "repos")
    write_json(results / "tasks/calc.json", [task])
    patches = {"right": gold_patch(RepoStore(results / "repos", tmp_path / "trees"), task), "wrong": WRONG}
    name = task["instance_id"]
    for policy, patch in patches.items():
        row = Prediction(instance_id=name, model_name_or_path=policy, model_patch=patch)
        write_json(results / f"rollouts/{policy}/calc/preds.json", {name: row})
        rows = grade_shard(
            [task], {name: row}, policy=policy, subset="calc", shard="000of001", workers=1,
            repos_dir=results / "repos", runs_dir=results / "progress/runs",
            progress=results / f"progress/grade/{policy}/calc/000of001.jsonl",
        )  # fmt: skip
        write_jsonl(results / f"grades/{policy}/calc/000of001.jsonl", rows)
    return results


def fingerprint(folder):
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_an_attempt_is_shown_and_run_again(results, task):
    name = task["instance_id"]
    code, text, _ = show(name, "--policy", "wrong", "--results", results)
    assert code == 0 and "\x1b" not in text
    for part in (
        f"{name}\n    wrong on calc\n    unresolved: 1 tests do not pass",
        task["problem_statement"].splitlines()[0],
        "+    return b - a",
        f"not passed  {task['FAIL_TO_PASS'][0]} (log: FAILED; observer: failed)",
        f"FAILED {task['FAIL_TO_PASS'][0]}",
    ):
        assert part in text, part
    before = fingerprint(results)
    (command,) = [line.strip() for line in text.splitlines() if line.endswith(" --run")]
    words = shlex.split(command.removeprefix(PROGRAM))
    code, text, told = show(*words)
    assert (code, told.splitlines()[-1]) == (
        0,
        f"unresolved: 1 tests do not pass, such as {task['FAIL_TO_PASS'][0]}",
    )
    assert f"FAILED {task['FAIL_TO_PASS'][0]}" in text
    code, text, told = show(*words, "grep -n return calc/core.py; exit 7")
    assert code == 7 and "return b - a" in text and "exit code 7 after" in told
    assert fingerprint(results) == before, "running it again changes nothing that is kept"


@pytest.mark.full
def test_another_verdict_than_before_is_said(results, task):
    path = results / "grades/right/calc/000of001.jsonl"
    path.write_text(path.read_text().replace('"status": "resolved"', '"status": "unresolved"'))
    code, _, told = show(task["instance_id"], "--policy", "right", "--results", results, "--run")
    assert code == 1 and told.splitlines()[-2:] == ["resolved", "the verdict was unresolved"]


def test_what_is_not_there_is_one_line(results, task):
    name = task["instance_id"]
    code, _, told = show(name[:-1] + "~", "--results", results)
    assert code == 2 and f"no such instance; expected one id, such as {name}" in told
    assert show(name[5:-2], "--policy", "right", "--results", results)[0] == 0, "a part of an id is enough"
    code, _, told = show(name, "--policy", "nobody", "--results", results)
    assert code == 2 and "no graded or validated attempt matches" in told and told.count("\n") == 1
    code, _, told = show(name, "--results", results / "none")
    assert code == 2 and "there are no tasks" in told
    (kept,) = [
        path
        for path in (results / "progress/runs").rglob("*.z")
        if json.loads((results / "grades/right/calc/000of001.jsonl").read_text())["run"][2:] in path.name
    ]
    kept.write_bytes(kept.read_bytes()[:-9])
    code, _, told = show(name, "--policy", "right", "--results", results)
    assert code == 2 and f"{kept}: the kept run cannot be read" in told and told.count("\n") == 1
    assert show(name, "--policy", "right", "--results", results, "--run")[0] == 0, (
        "the prediction has the patch"
    )
    kept.unlink()
    code, text, _ = show(name, "--policy", "right", "--results", results)
    assert code == 0 and "no run is kept" in text and "+    return a + b" in text


def test_a_terminal_is_not_steered_by_what_tests_print():
    assert plain("a\x1b]0;title\x07b\rc\td\n\x9b2J\udcff") == "a?]0;title?b?c\td\n?2J?"
