"""Whose fault an error of the guard is."""

import pytest

from swelab.grading.evidence import RunEvidence
from swelab.grading.harness.patch_run import guard_fault


@pytest.mark.parametrize(
    ("patched", "power", "ended", "reason"),
    [
        ("", "", "infra_error", "the guard itself failed: ValueError"),
        ("a.py", "", "unresolved", "the guard failed while a.py was at work: ValueError"),
        (
            "",
            "a.py sys.setprofile",
            "unresolved",
            "the guard failed while a.py sys.setprofile was at work: ValueError",
        ),
        (
            "",
            "a.py sys.addaudithook",
            "unresolved",
            "the guard failed while a.py sys.addaudithook was at work: ValueError",
        ),
        ("", "a.py os.fork", "infra_error", "the guard itself failed: ValueError"),
    ],
)
def test_code_that_can_raise_anywhere_answers_for_an_error_of_the_guard(patched, power, ended, reason):
    fault = {"error": "ValueError", "traceback": "Traceback", "patched": patched}
    observed = {"faults": [fault], "powers": [power] if power else []}
    found = guard_fault(RunEvidence.of({"log": "", "observed": observed}))
    assert (found["ended"], found["reason"]) == (ended, reason)
