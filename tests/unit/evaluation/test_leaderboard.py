"""Submissions to the leaderboard: their claims and minutes, and evaluations that cannot be submitted."""

import pytest

from swelab.evaluation.attempt_folders import AttemptFolders
from swelab.evaluation.evaluation_plan import scaffold_of
from swelab.evaluation.evaluation_run import RunTime
from swelab.evaluation.leaderboard import (
    Submission,
    check_ids,
    missing_tasks,
    used_of,
    write_leaderboard,
    write_submission,
)
from swelab.records import InputError, write_json, write_jsonl
from tests.conftest import make_task
from tests.unit.evaluation.test_evaluation_run import attempt

ID = "django__django-1"
SUMMARY = {"model": "m", "data": "rows.jsonl", "samples": 1, "complete": True, "resolved": 1, "total": 20}
SUMMARY |= {"resolve_rate": 0.05, "interval": (0.0, 0.2), "errors": 0}


def readme_of(tmp_path, scaffold="mini-swebench", **summary):
    out = tmp_path / "out"
    used = used_of(*scaffold_of(scaffold)) if scaffold else {}
    attempts = [Submission(ID, "empty_patch", "", None, "", None)]
    write_submission(out, "toy", attempts, SUMMARY | summary, used, {})
    return (out / "README.md").read_text()


def test_every_box_is_ticked_where_all_is_known(tmp_path):
    said = readme_of(tmp_path, statements_naming_tests=[])
    assert said.count("- [x]") == 4 and "- [ ]" not in said


@pytest.mark.parametrize(
    ("scaffold", "summary", "why"),
    [
        ("demo", {"statements_naming_tests": [ID]}, "no: 1 statements name a test to repair, such as"),
        ("demo", {}, "not known: nobody counted"),
        ("debugger", {"statements_naming_tests": []}, "no: the agent's tool `eval` runs the files"),
        ("swe-agent-infer", {"statements_naming_tests": []}, "web-browsing (not known"),
        ("", {"statements_naming_tests": []}, "web-browsing (not known"),
    ],
)
def test_a_box_stays_empty_where_a_claim_does_not_hold_or_is_not_known(tmp_path, scaffold, summary, why):
    said = readme_of(tmp_path, scaffold, **summary)
    (line,) = [line for line in said.splitlines() if line.startswith("- [ ]")]
    assert why in line and said.count("- [x]") == 3


def test_tasks_are_counted_against_the_splits(tmp_path):
    assert not missing_tasks(range(500)) and not missing_tasks(range(2294))
    assert "| tasks | 1 of `rows.jsonl`; 1 tasks are no whole split (lite 300," in readme_of(tmp_path)


@pytest.mark.parametrize("name", ["task-0", "swelab__calc.00000000.func_pm_op_change__abcd1234", "a__b-x"])
def test_an_id_of_another_form_is_refused(name):
    check_ids([ID, "sphinx-doc__sphinx-10323"])
    with pytest.raises(InputError, match=f"1 tasks are of no benchmark of the leaderboard, such as {name}"):
        check_ids([ID, name])


def evaluation(folder, name=ID, **summary):
    write_json(folder / "summary.json", SUMMARY | summary)
    write_json(folder / "evaluation.json", {"scaffold": {"agent": "mini"}})
    write_json(folder / "report.json", {"instances": {name: {"status": "empty_patch"}}})
    write_json(folder / "preds.json", {name: {"model_name_or_path": "m", "model_patch": ""}})
    (folder / "progress").mkdir()
    (folder / "progress/results.jsonl").write_text("")
    write_jsonl(folder / "results.jsonl", [{"instance_id": name, "run_dir": ""}])
    return folder


@pytest.mark.parametrize(
    ("name", "summary", "why"),
    [
        (ID, {"errors": 4}, "4 of 20 attempts were lost to infrastructure; expected at most 0"),
        ("task-0", {}, "no benchmark of the leaderboard, such as task-0"),
    ],
)
def test_an_evaluation_that_is_no_submission_is_refused_and_leaves_nothing(tmp_path, name, summary, why):
    with pytest.raises(InputError, match=why):
        write_leaderboard(evaluation(tmp_path / "in", name, **summary), tmp_path / "to", "toy", {})
    assert not (tmp_path / "to").exists()


def test_losses_that_were_accepted_are_told(tmp_path):
    folder = evaluation(tmp_path / "in", errors=4)
    out = write_leaderboard(folder, tmp_path / "to", "toy", {}, max_lost=4)
    assert "| lost to infrastructure, counted as not resolved | 4 |" in (out / "README.md").read_text()


def test_a_killed_run_counts_up_to_its_last_attempt(tmp_path):
    now, path = [0.0], tmp_path / "progress/minutes.json"
    first = RunTime(path, lambda: now[0])
    folders = AttemptFolders(tmp_path, {}, first.note)
    now[0] = 120
    folders.append(attempt(make_task(), status="resolved", resolved=True))
    now[0] = 6000  # killed: no record of its end
    second = RunTime(path, lambda: now[0])
    now[0] = 6060
    assert second.note() == 3
    assert RunTime(path, lambda: 0.0).note() == 3
