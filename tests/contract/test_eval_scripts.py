"""Eval scripts in the forms of published rows, in real sandboxes: gold is resolved, an empty patch is not."""

import json

import pytest
from swebench import types

from swelab.grading.harness.grade import grade_evidence, run_patch
from swelab.grading.harness.spec import read_spec
from swelab.records import InputError
from swelab.sandbox import Limits
from swelab.tasks.patch_text import reversed_patch
from tests.at_hand import DATA, needs_rows
from tests.conftest import BUG

pytestmark = pytest.mark.real
START, END = ">>>>> Start Test Output", ">>>>> End Test Output"
CHECKOUT = "git checkout HEAD tests/test_core.py"
RUN = "pytest -rA --tb=no -p no:cacheprovider tests"
HEADS = ["set -uxo pipefail", "set -e", "set -exo pipefail"]
SHAPES = {
    "ends in git checkout": f"{RUN}\n{CHECKOUT}\n",
    "ends in pytest": f"{RUN}\n",
    "ends in what fails": f"{RUN}\ngit checkout no-such-commit\n",
    "a pipe": f"{RUN} | tee log\n{CHECKOUT}\n",
    "a pipe in which errors stop it": f"({RUN} || true) | tee log\n{CHECKOUT}\n",
    "continued on another line": RUN.replace(" tests", " \\\n  tests") + f"\n{CHECKOUT}\n",
    "pip's command line names pytest": f"python -m pip show -q pytest\n{RUN}\n{CHECKOUT}\n",
    "asks for the version before": f"pytest --version\npython -m pytest -h >log\n{RUN}\n{CHECKOUT}\n",
    "sets options of its own": f"export PYTEST_ADDOPTS=-v\n{RUN}\n{CHECKOUT}\n",
}


def row(task, script, **more):
    """Returns a row in SWE-Gym's format for the small package. Its patch is the fix."""
    fix = {"patch": reversed_patch(BUG), "test_cmd": "", "repo_recipe": "", "eval_script": script}
    return task | fix | more


def told(task, patch, store, backend):
    """Returns the status and reason of a patch on a row whose repository already has the bug."""
    run = run_patch(task, patch, store, backend, Limits(), allow_empty=True)
    return grade_evidence(read_spec(task), patch, run), run


@pytest.fixture
def buggy_store(store, task, monkeypatch):
    """A store whose checkouts have the bug."""
    checkout, bug = store.checkout, {"patch": BUG, "repo_recipe": task["repo_recipe"]}
    monkeypatch.setattr(store, "checkout", lambda row, *rest, **named: checkout(row | bug, *rest, **named))
    return store


def holds(row, store, backend):
    gold, run = told(row, row["patch"], store, backend)
    assert gold["status"] == "resolved", (gold["reason"], run.get("log"))
    empty, run = told(row, "", store, backend)
    assert empty["status"] == "unresolved" and "test_add" in empty["reason"], (empty["reason"], run["log"])


@pytest.mark.parametrize(
    "head, shape",
    [(HEADS[0], shape) for shape in SHAPES]
    + [(head, shape) for head in HEADS[1:] for shape in ("ends in git checkout", "ends in what fails")],
)
def test_scripts_without_markers(task, buggy_store, backend, head, shape):
    holds(row(task, f"#!/bin/bash\n{head}\n{SHAPES[shape]}"), buggy_store, backend)


@pytest.mark.parametrize("after", [CHECKOUT, "true"])
def test_scripts_as_swebench_makes_them(task, buggy_store, backend, after):
    commands = [CHECKOUT, f": '{START}'", RUN, f": '{END}'", after]
    script = types.TestSpec("i", "", commands, "r", "1", [], [], "", "").eval_script
    assert "set -uxo pipefail" in script
    holds(row(task, script, log_parser="parse_log_pytest", eval_type="pass_and_fail"), buggy_store, backend)


@needs_rows
def test_a_real_rows_script(task, buggy_store, backend):
    """The script of a SWE-Gym row, with this package's names and without the set-up of its image."""
    rows = (DATA / "swe_gym_subset20.jsonl").read_text().splitlines()
    real = json.loads(rows[0])["metadata"]["instance"]
    script = real["eval_script"].replace(real["base_commit"], "HEAD")
    script = script.replace("tests/test_ecs/test_ecs_boto3.py", "tests/test_core.py")
    lines = [line for line in script.split("\n") if not line.startswith(("source ", "conda ", "make "))]
    first = next(n for n, line in enumerate(lines) if line.startswith("git apply"))
    last = next(n for n, line in enumerate(lines) if n > first and line.startswith("EOF_"))
    diff = "--- a/tests/test_core.py\n+++ b/tests/test_core.py\n@@ -9,2 +9,3 @@\n def test_last():\n"
    lines[first + 1 : last] = (diff + "+    assert add(1, 1) == 2\n     assert last([1, 2]) == 2").split("\n")
    assert lines[1] == "set -exo pipefail" and [line for line in lines if line][-1].startswith(
        "git checkout "
    )
    lines = ["pytest -rA tests/test_core.py" if line.startswith("pytest ") else line for line in lines]
    both = {"FAIL_TO_PASS": [*task["FAIL_TO_PASS"], "tests/test_core.py::test_last"], "PASS_TO_PASS": []}
    holds(row(task, "\n".join(lines), **both), buggy_store, backend)


RUNS = {
    "in a statement": "if true; then\n  " + RUN + "\nfi\n",
    "after a folder": f"cd . &&\n{RUN}\n",
    "from a string": "T=py; T=${T}test\n" + RUN.replace("pytest", '"$T"') + "\n",
}


LOOKS = "import os\nassert len(os.listdir('.git/objects')) <= 4, 'the history is there'\n"


@pytest.mark.parametrize("run", RUNS)
def test_the_history_is_gone_when_tests_run(task, buggy_store, backend, run):
    """The code under test looks for the history when it is imported."""
    script = "git checkout -q HEAD tests\n" * (run != "from a string") + RUNS[run]
    added = "".join(f"+{line}\n" for line in LOOKS.splitlines())
    patch = f"--- a/calc/__init__.py\n+++ b/calc/__init__.py\n@@ -0,0 +1,2 @@\n{added}"
    grade, kept = told(row(task, script), reversed_patch(BUG) + patch, buggy_store, backend)
    assert "1 passed" in kept["log"] or "2 passed" in kept["log"], kept["log"]
    assert "the history is there" not in kept["log"] and grade["status"] != "tampered", grade["reason"]


def test_a_script_that_hides_its_tests_behind_git_is_refused(task, buggy_store, backend):
    script = "git checkout -q HEAD tests\n" + RUNS["from a string"]
    why = "does not tell where its tests begin.*expected a line that runs pytest"
    with pytest.raises(InputError, match=why):
        told(row(task, script), reversed_patch(BUG), buggy_store, backend)


def test_an_interpreter_that_does_not_load_the_guard_is_said(task, buggy_store, backend):
    script = f"unset PYTHONPATH\n{RUN}\n"
    gold, _ = told(row(task, script), reversed_patch(BUG), buggy_store, backend)
    assert gold["status"] == "unresolved"
    assert "no test runner started that loads the guard: exit code" in gold["reason"], gold["reason"]
