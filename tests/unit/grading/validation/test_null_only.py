"""Null runs of tasks without a gold patch, and one test command for several tasks."""

from types import SimpleNamespace

import pytest

from swelab.grading.validation.validate_tasks import null_difference, null_facts, null_sentence
from swelab.grading.validation.validation_batches import merge_commands
from swelab.records.task_records import Task

TASK = Task.of(
    {
        "instance_id": "a",
        "answers": "none",
        "FAIL_TO_PASS": ["t::a", "t::b"],
        "PASS_TO_PASS": ["t::c"],
        "null_run": {"collected": 4, "imports": False, "collected_by": "stand-in", "ended": "broken off"},
    }
)


def run(missing=2, differs="", unjudged=""):
    return SimpleNamespace(missing=missing, differs=differs, unjudged=unjudged)


@pytest.mark.parametrize(
    ("runs", "part", "reason"),
    [
        ([run(), run()], "kept", ""),
        ([run(), run(1, "t::b")], "flaky", "1 of 2 null runs differ from the row, such as in t::b"),
        ([run(), run(0, "t::a")], "broken", "an empty patch is resolved"),
        ([run(), run(unjudged="the guard itself failed: x")], "unjudged", "the guard itself failed: x"),
    ],
)
def test_the_sentence(runs, part, reason):
    assert null_sentence(runs) == (part, reason)


def test_differences():
    assert null_difference(TASK, ["t::a", "t::b"]) == ""
    assert null_difference(TASK, ["t::a"]) == "t::b"
    assert null_difference(TASK, ["t::a", "t::b", "t::c"]) == "t::c"


def test_facts_of_the_lock():
    facts = {"validated": "null only", "fails": ["t::a", "t::b"], "collected": 4, "imports": False}
    assert null_facts(TASK) == facts
    assert null_facts(Task.of({"instance_id": "b", "patch": "x"})) == {}


@pytest.mark.parametrize(
    "first, second, merged",
    [
        ("pytest -q a.py", "pytest -q a.py", "pytest -q a.py"),
        ("pytest -q a.py", "pytest -q b.py", "pytest -q a.py b.py"),
        ("pytest -q a.py b.py", "pytest -q b.py 'c d.py'", "pytest -q a.py b.py 'c d.py'"),
        ("cd a && pytest t/a.py", "cd a && pytest t/b.py", "cd a && pytest t/a.py t/b.py"),
        ("export X=$HOME; pytest a.py", "export X=$HOME; pytest b.py", "export X=$HOME; pytest a.py b.py"),
    ],
)
def test_merged_commands_stay_as_they_are_written(first, second, merged):
    assert merge_commands([first, second]) == merged
