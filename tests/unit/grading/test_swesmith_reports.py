"""The folder of an evaluation by hand: reports in SWE-smith's shapes, and refusals before anything runs."""

import json

import pytest

from swelab.grading.grade_predictions import subset_tasks
from swelab.grading.swesmith_reports import instance_report, run_folder, run_report, write_instance
from swelab.records import InputError
from swelab.records.attempt_records import Grade, Prediction
from swelab.records.task_records import Task

TESTS = {"FAIL_TO_PASS": {"success": ["a"], "failure": []}, "PASS_TO_PASS": {"success": [], "failure": ["b"]}}


def prediction(patch="diff"):
    return Prediction(instance_id="x", model_name_or_path="m", model_patch=patch)


def test_an_instances_report_has_the_harnesss_shape():
    grade = Grade.of({"instance_id": "x", "status": "unresolved", "resolved": False, "tests_status": TESTS})
    report = instance_report(grade, prediction(), 90)
    assert list(report)[:4] == ["patch_exists", "resolved", "tests_status", "model_name_or_path"]
    assert list(report["tests_status"]) == ["FAIL_TO_PASS", "PASS_TO_PASS", "FAIL_TO_FAIL", "PASS_TO_FAIL"]
    late = instance_report(
        Grade.of({"instance_id": "x", "status": "timeout", "resolved": False}), prediction(), 90
    )
    assert late["timed_out"] is True and late["timeout"] == 90 and "resolved" not in late
    assert instance_report(Grade.of({"status": "infra_error", "resolved": False}), prediction(), 90) is None
    assert instance_report(grade, prediction(None), 90)["patch_exists"] is False


def test_a_verdict_that_no_longer_holds_leaves_no_report(tmp_path):
    write_instance(tmp_path / "x", {"resolved": True}, "diff\n", "log \udcff")
    assert (tmp_path / "x/patch.diff").read_text() == "diff\n"
    assert (tmp_path / "x/test_output.txt").read_text() == "log \\udcff"
    write_instance(tmp_path / "x", None, None, "")
    assert not list((tmp_path / "x").iterdir())


def test_the_runs_report_counts_what_was_lost_and_what_is_unknown(tmp_path):
    write_instance(tmp_path / "a", {"resolved": True}, "d", "")
    write_instance(tmp_path / "b", {"timed_out": True, "timeout": 90}, "d", "")
    found = run_report(tmp_path, {name: prediction() for name in "abcd"}, ["d"])
    assert found == {
        "resolved": 1, "unresolved": 1, "total": 4, "ids_resolved": ["a"], "ids_unresolved": ["b"],
        "ids_lost": ["c"], "ids_unknown": ["d"],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["", "..", "a/b", ".hidden", "a b"])
def test_run_ids_are_names_of_folders(tmp_path, name):
    with pytest.raises(InputError, match="not a run id"):
        run_folder(tmp_path, name)
    assert run_folder(tmp_path, "run-1.2_x@y") == tmp_path / "run-1.2_x@y"


def test_a_subset_file_in_its_shapes(tmp_path, task):
    rows = [task, Task.of({**task, "instance_id": "other__b.1", "FAIL_TO_PASS": '["t"]'})]
    (tmp_path / "s.json").write_text(json.dumps(rows))
    (tmp_path / "s.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("s.json", "s.jsonl"):
        found = subset_tasks(tmp_path / name, [], 7)
        assert [row["instance_id"] for row in found] == ["other__b.1", task["instance_id"]]
        assert {row["test_timeout"] for row in found} == {7} and found[0]["FAIL_TO_PASS"] == ["t"]
    assert [row["instance_id"] for row in subset_tasks(tmp_path / "s.json", ["other__*"], None)] == [
        "other__b.1"
    ]
    for globs, words in ((["z*"], "no instance matches z"), (["x"], "no instance matches x")):
        with pytest.raises(InputError, match=words):
            subset_tasks(tmp_path / "s.json", globs, None)
    with pytest.raises(InputError, match="no such file"):
        subset_tasks(tmp_path / "none.json", [], None)
    (tmp_path / "s.json").write_text(json.dumps([{**task, "instance_id": "../x"}]))
    with pytest.raises(InputError, match="not a folder's name"):
        subset_tasks(tmp_path / "s.json", [], None)
