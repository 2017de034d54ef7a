"""Verdicts that need no run, and the phases of a run."""

from contextlib import contextmanager, nullcontext

import pytest

from swelab.grading.harness import grade as module
from swelab.grading.harness.grade import CHECKS, grade, run_patch
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
    """JSON can contain half a character. Two different halves make two different patches."""
    grades = [grade(TASK, f"+x{half}", None, None, Limits()) for half in ("\ud800", "\udfff\udc80")]
    for found in grades:
        check(found, Grade, "here")
        assert found.status == "apply_failed" and "half a character" in found.reason
    assert grades[0].patch_sha256 != grades[1].patch_sha256


@pytest.mark.parametrize("witness", [object(), None])
def test_a_question_and_the_tests_have_their_sandboxes_in_phases_of_their_own(monkeypatch, witness):
    log = []

    @contextmanager
    def logged(name):
        log.append(f"{name} begins")
        yield name
        log.append(f"{name} ends")

    class Run:
        def __init__(self, *_, **__):
            pass

        def evidence(self):
            return {"dynamic": []}

    sandboxes = lambda *_: nullcontext(lambda forgets: logged("tests" if forgets else "question"))  # noqa: E731
    monkeypatch.setattr(module, "phase", lambda task, kind: logged(f"{task}, {kind}:"))
    monkeypatch.setattr(module, "sandboxes", sandboxes)
    monkeypatch.setattr(module, "PatchRun", Run)
    monkeypatch.setattr(module, "QuestionRun", Run)
    monkeypatch.setattr(module, "ask_question", lambda *_: {"said": ""})
    monkeypatch.setattr(module, "read_verdict", lambda *_: ("unresolved", "", {}))
    monkeypatch.setattr(module, "wants_echo", lambda *_: False)
    run_patch(
        TASK, "--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+x\n", None, None, Limits(), CHECKS, witness=witness
    )
    inside = [["a, question:", "question"], ["a, tests:", "tests"]] if witness else [["tests"]]
    assert log == [
        event
        for names in inside
        for event in [*(f"{name} begins" for name in names), *(f"{name} ends" for name in names[::-1])]
    ]
