"""Verdicts for which nothing is run."""

from swelab.grading.harness.grade import grade
from swelab.records import check
from swelab.records.attempt_records import Grade
from swelab.records.task_records import Task
from swelab.sandbox import Limits

TASK = Task.of(
    {
        "instance_id": "a",
        "patch": "",
        "FAIL_TO_PASS": ["t.py::test_f"],
        "PASS_TO_PASS": [],
        "test_cmd": "pytest",
    }
)


def test_a_patch_that_no_file_can_hold_does_not_apply():
    """Half a character comes as JSON; two of them that differ are two patches."""
    grades = [grade(TASK, f"+x{half}", None, None, Limits()) for half in ("\ud800", "\udfff\udc80")]
    for found in grades:
        check(found, Grade, "here")
        assert found.status == "apply_failed" and "half a character" in found.reason
    assert grades[0].patch_sha256 != grades[1].patch_sha256
