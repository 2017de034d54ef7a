"""Contradictions between channels, and the verdict that each gives."""

import pytest

from swelab.grading.evidence import RunEvidence
from swelab.grading.harness import logs
from swelab.grading.harness.spec import RunSpec
from swelab.grading.harness.verdict import verdict

FAIL, PASS = "tests/t.py::test_f", "tests/t.py::test_p"
SPEC = RunSpec("i", (FAIL,), (PASS,), test_cmd="pytest")
LOG = f"PASSED {FAIL}\nPASSED {PASS}\nFAILED tests/c.py::test_2 - assert 1 == 2\n"
JUNIT = (
    '<testsuites><testsuite><testcase classname="tests.t" name="test_f"/>'
    '<testcase classname="tests.t" name="test_p"/></testsuite></testsuites>'
)


def seen(**changes):
    outcomes = {FAIL: "passed", PASS: "passed"}
    record = {
        "exit": 1,
        "outcomes": outcomes,
        "raised": {},
        "marked": [],
        "changed": [],
        "powers": [],
        "junit": JUNIT,
    }
    return record | changes | {"outcomes": outcomes | changes.get("outcomes", {})}


def run(observed=None, **changes):
    return RunEvidence.of(
        {
            "ended": "ran",
            "reason": "",
            "findings": [],
            "guarded": True,
            "timed_out": False,
            "limit": "",
            "log": LOG,
            "code": 1,
            "sealed": "whole",
            "echo": "",
            "observed": observed or seen(),
            **changes,
        }
    )


def test_all_channels_agree():
    assert verdict(SPEC, run())[:2] == ("resolved", "")


FORMS = {
    "workers": f"[gw0] [ 50%] PASSED {FAIL} \n[gw1] [100%] PASSED {PASS} \n",
    "workers, classic": f"[gw1] PASSED {FAIL} \n[gw0] PASSED {PASS} \n",
    "workers, counted": f"[gw1] [1/2] PASSED {FAIL} \n[gw0] [2/2] PASSED {PASS} \n",
    "a path with a space": f"PASSED my {FAIL}\nPASSED my {PASS}\n",
    "points": "..                                        [100%]\n2 passed in 0.1s\n",
    "other words": f" {FAIL} ✓   50% #####\n {PASS} ✓  100% ##########\n",
}
CALLED = {FAIL: "", PASS: ""}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("parser", ["parse_log_pytest", "parse_log_pytest_verbose"])
def test_a_log_of_another_form_leaves_the_verdict_to_the_record(form, parser):
    spec = RunSpec("i", (FAIL,), (PASS,), test_cmd="pytest", parser=parser)
    assert verdict(spec, run(seen(raised=CALLED), log=FORMS[form]))[:2] == ("resolved", "")
    unseen = verdict(spec, run(seen(), log=FORMS[form]))
    assert unseen[0] == "unresolved" and "2 tests do not pass" in unseen[1]
    failed = seen(raised={**CALLED, FAIL: "AssertionError"}, outcomes={FAIL: "failed"}, junit=None)
    assert verdict(spec, run(failed, log=FORMS[form]))[0] == "unresolved"
    without = seen(raised={PASS: ""})
    del without["outcomes"][FAIL]
    assert verdict(spec, run(without, log=FORMS[form]))[0] == "unresolved"


@pytest.mark.parametrize(
    "case, word",
    [
        (run(seen(changed=["_pytest.runner.x"])), "changed while it ran"),
        (run(code=0), "its process with 0"),
        (run(seen(raised={FAIL: "AssertionError"})), "raised AssertionError and is reported as passed"),
        (run(seen(outcomes={FAIL: "failed"})), "the log says"),
        (
            run(seen(junit=JUNIT.replace('"test_f"/>', '"test_f"><failure/></testcase>'))),
            "the JUnit file says FAILED",
        ),
        (run(echo="t passes with an assertion that cannot hold"), "cannot hold"),
        (run(sealed="broken"), "not its own"),
        (run(sealed="gap"), "are missing"),
        (run(sealed="unended"), "fell silent though"),
        (run(sealed="unended", code=0), "fell silent though"),
        (run(sealed="unstarted", code=0), "never spoke though"),
        (run(seen(junit="")), "JUnit file is missing"),
        (run(seen(raised={PASS: ""})), "test_f is reported as passed but was not seen to run"),
    ],
)
def test_contradictions_are_tampering(case, word):
    status, reason, _ = verdict(SPEC, case)
    assert status == "tampered" and word in reason, reason


@pytest.mark.parametrize(
    "case, word",
    [
        (run(seen(powers=["a.py gc.get_objects"])), "reserved power: a.py gc.get_objects"),
        (run(findings=["a.py:1: imports gc"]), "reaches for the test run: a.py:1: imports gc"),
    ],
)
def test_code_that_could_forge_a_success_is_suspect_only_where_there_is_one(case, word):
    status, reason, tests = verdict(SPEC, case)
    assert status == "suspect" and word in reason and not list(logs.failed_tests(tests))
    failing = run(seen(junit=None, outcomes={FAIL: "failed"}), log=LOG.replace(f"PASSED {FAIL}\n", ""))
    told = failing | {"findings": case.findings}
    told["observed"]["powers"] = case.observed.powers
    assert verdict(SPEC, told)[0] == "unresolved"


def test_a_contradiction_is_tampering_only_where_the_log_claims_success():
    silent = run(seen(changed=["_pytest.runner.x"]), log=LOG.replace(f"PASSED {FAIL}\n", ""))
    status, reason, _ = verdict(SPEC, silent)
    assert status == "unresolved" and "changed while it ran" in reason
    silent = silent | {"observed": None, "sealed": "unended"}
    assert verdict(SPEC, silent)[0] == "unresolved"


@pytest.mark.parametrize(
    "case, word",
    [
        (
            run(
                seen(junit=None, outcomes={FAIL: "failed"}),
                log=LOG.replace(f"PASSED {FAIL}", f"FAILED {FAIL}"),
            ),
            "do not pass",
        ),
        (run(seen(junit=None, outcomes={FAIL: "xfailed"}, marked=[FAIL])), "do not pass"),
        (run(seen(junit=None, outcomes={PASS: "xfailed"})), "do not pass"),
        (run(seen(junit=None, outcomes={PASS: "skipped"})), "do not pass"),
        (
            run(seen(junit=None, outcomes={PASS: "error"}), log=LOG.replace(f"PASSED {PASS}\n", "")),
            "do not pass",
        ),
        (run(log=LOG.replace(f"PASSED {PASS}\n", "")), "do not pass"),
        (run(sealed="unended", code=2), "broke off with exit code 2"),
        (run(sealed="unstarted", code=1), "no test runner started"),
        (run(sealed="unended", code=139), "broke off with exit code 139"),
        (run(code=None, limit="memory"), "memory"),
        (run(sealed="cut"), "too long to be kept"),
    ],
)
def test_what_fails_honestly(case, word):
    status, reason, _ = verdict(SPEC, case)
    assert status == "unresolved" and word in reason, (status, reason)


def test_a_broken_conftest_is_no_cheat():
    outcomes = dict.fromkeys((FAIL, PASS, "tests/c.py::test_1", "tests/c.py::test_2"), "error")
    log = "".join(f"ERROR {test}\n" for test in outcomes)
    assert verdict(SPEC, run(seen(junit=None, outcomes=outcomes), log=log))[0] == "unresolved"


def test_an_expected_failure_marked_by_the_tests_themselves_counts_for_the_tests_that_passed_before():
    case = run(
        seen(outcomes={PASS: "xfailed"}, marked=[PASS]), log=LOG.replace(f"PASSED {PASS}", f"XFAIL {PASS}")
    )
    assert verdict(SPEC, case)[0] == "resolved"


@pytest.mark.parametrize(
    "junit",
    [
        JUNIT.replace("<testsuites>", "<testsuites>" + "<a/>" * 1_000_000),
        '<!DOCTYPE t [<!ENTITY a "aaaaaaaa">]>' + JUNIT,
    ],
    ids=["a million tags", "entities"],
)
def test_a_junit_file_that_pytest_does_not_write_is_not_read(junit, monkeypatch):
    monkeypatch.setattr("swelab.grading.harness.verdict.ElementTree", None)
    assert verdict(SPEC, run(seen(junit=junit)))[0] == "resolved"


@pytest.mark.parametrize(
    "label, status", [("stdlib.math.isclose", "suspect"), ("stdlib.sys.excepthook", "resolved")]
)
def test_a_function_of_the_library_may_be_replaced_only_where_python_means_it(label, status):
    assert verdict(SPEC, run(seen(changed=[label])))[0] == status
