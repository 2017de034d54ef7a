"""With `guard: reference` the verdict is exactly that of SWE-bench's own harness."""

import pytest

from swelab.grading.harness.verdict import verdict
from tests.unit.grading.harness.test_logs import CASES, bench, lines, run, spec


@pytest.mark.parametrize("name", CASES)
def test_a_log_is_read_as_the_reference_reads_it(tmp_path, name):
    log, code, *_ = CASES[name]
    found = verdict(spec(), run(log, code, reference=True))
    assert (found[0] == "resolved") is bench(tmp_path, log, code)


@pytest.mark.parametrize(
    "log", ["Tests: 5 passed\n", "nothing ran\n", "ERROR t.py::test_p\n", "Tests: 5 total\n"]
)
def test_logs_that_list_failures_only(tmp_path, log):
    found = verdict(spec(eval_type="fail_only"), run(log, 1, reference=True))
    assert (found[0] == "resolved") is bench(tmp_path, log, 1, "fail_only")


def test_neither_suspicion_nor_record_is_heard():
    log = lines(f="PASSED", p="SKIPPED")
    told = {"findings": ["a.py:1: imports gc"], "reference": True}
    status, reason, tests = verdict(spec(), run(log, 0, **told))
    assert (status, reason) == ("resolved", "") and tests.PASS_TO_PASS.success
    assert verdict(spec(), run(log, 0))[0] == "unresolved"
    assert verdict(spec(), run(log, None, timed_out=True, **told))[0] == "timeout"
