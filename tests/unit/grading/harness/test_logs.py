"""Per-test results compared with two reference harnesses. Ours resolves only where both do."""

import random
import re

import pytest
from swebench import types
from swebench.harness.grading import get_eval_report
from swebench.harness.log_parsers import PARSER_REGISTRY

from swelab.grading.evidence import RunEvidence
from swelab.grading.harness.guard import wrap
from swelab.grading.harness.logs import SUITE_RAN, Results, between, official_part, statuses
from swelab.grading.harness.spec import RunSpec
from swelab.grading.harness.verdict import verdict
from swelab.records import InputError
from tests.conftest import run_python

FAIL, PASS = "t.py::test_f", "t.py::test_p"
START, END = ">>>>> Start Test Output", ">>>>> End Test Output"


def spec(**changes):
    return RunSpec("i__i-1", (FAIL,), (PASS,), **{"test_cmd": "run", "parser": "parse_log_pytest"} | changes)


def lines(**told):
    return "".join(
        f"{status} {test}\n" for test, status in ((FAIL, told.get("f")), (PASS, told.get("p"))) if status
    )


def run(log, code=0, **more):
    return RunEvidence.of(
        {
            "ended": "ran",
            "reason": "",
            "findings": [],
            "guarded": False,
            "timed_out": False,
            "limit": "",
            "log": log,
            "code": code,
            "echo": "",
            "seconds": 1.0,
            **more,
        }
    )


def ours(log, code=0, **changes):
    return verdict(spec(**changes), run(log, code))


def bench(tmp_path, log, code, eval_type="pass_and_fail", fail=FAIL):
    """Returns swebench's own verdict on the log of such a run."""
    path = tmp_path / "test_output.txt"
    path.write_text(f"{START}\n{log}{END}\n>>>>> Test Exit Code: {code}\n")
    test_spec = types.TestSpec("i__i-1", "", [], "r/r", "1", [fail], [PASS], "parse_log_pytest", eval_type)
    prediction = {"instance_id": "i__i-1", "model_patch": "x", "model_name_or_path": "m"}
    return get_eval_report(test_spec, prediction, path, True)["i__i-1"]["resolved"]


def smith(log, fail=FAIL):
    """Applies SWE-smith's rule: failed means absent, FAILED or ERROR; skipped tests are ignored."""
    status = {m[2]: m[1] for m in re.finditer(r"^(FAILED|PASSED|SKIPPED|ERROR|XFAIL)\s+(\S+)", log, re.M)}
    return all(status.get(test) in ("PASSED", "XFAIL", "SKIPPED") for test in (fail, PASS))


CASES = {
    # name: (log, exit code, ours, swebench, swesmith)
    "all pass": (lines(f="PASSED", p="PASSED"), 0, True, True, True),
    "the broken test still fails": (lines(f="FAILED", p="PASSED"), 1, False, False, False),
    "another test breaks": (lines(f="PASSED", p="FAILED"), 1, False, False, False),
    "error in a test": (lines(f="ERROR", p="PASSED"), 1, False, False, False),
    "the broken test is skipped": (lines(f="SKIPPED", p="PASSED"), 0, False, False, True),
    "all tests are skipped": (lines(f="SKIPPED", p="SKIPPED"), 0, False, False, True),
    "another test is skipped": (lines(f="PASSED", p="SKIPPED"), 0, False, True, True),
    "the broken test is expected to fail": (lines(f="XFAIL", p="PASSED"), 0, False, True, True),
    "another test is expected to fail": (lines(f="PASSED", p="XFAIL"), 0, True, True, True),
    "the broken test is missing": (lines(p="PASSED"), 0, False, False, False),
    "another test is missing": (lines(f="PASSED"), 0, False, False, False),
    "nothing was parsed": ("no tests ran\n", 0, False, False, False),
    "nothing at all": ("", 0, False, False, False),
    "exit code without a failure": (lines(f="PASSED", p="PASSED"), 1, False, False, True),
    "exit code of other tests' failure": (
        lines(f="PASSED", p="PASSED") + "FAILED t.py::test_other\n", 1, True, True, True,
    ),
    "a later line about a test wins": (
        "PASSED t.py::test_f\n" + lines(f="FAILED", p="PASSED"), 1, False, False, False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_ours_is_as_strict_as_both(tmp_path, name):
    log, code, mine, of_bench, of_smith = CASES[name]
    assert (ours(log, code)[0] == "resolved") is mine
    assert bench(tmp_path, log, code) is of_bench and smith(log) is of_smith
    assert not mine or (of_bench and of_smith)


CUT = "t.py::test_f[a"


@pytest.mark.parametrize(
    "log, mine",
    [
        ("PASSED t.py::test_f[a]\n", True),
        ("PASSED t.py::test_f[ab]\nPASSED t.py::test_f[ac]\n", True),
        ("PASSED t.py::test_f[ab]\nFAILED t.py::test_f[ac]\n", False),
        ("PASSED t.py::test_f[a\nFAILED t.py::test_f[ab]\n", True),
        ("PASSED t.py::test_f[b]\n", False),
        ("PASSED t.py::test_fx[a]\n", False),
    ],
)
def test_ids_cut_at_a_space(tmp_path, log, mine):
    log += lines(p="PASSED")
    code = 1 if "FAILED" in log else 0
    assert (verdict(RunSpec("i", (CUT,), (PASS,), test_cmd="run"), run(log, code))[0] == "resolved") is mine
    assert bench(tmp_path, log, code, fail=CUT) is mine


SPACED = "t.py::test_f[a b]"


@pytest.mark.parametrize(
    "log, mine",
    [
        (f"PASSED {SPACED}\n", True),
        (f"FAILED {SPACED} - assert 1 == 2\n", False),
        (f"PASSED {SPACED}\nFAILED t.py::test_f[a c]\n", False),  # the log does not show which of the two
        ("PASSED t.py::test_f[ab]\n", False),
    ],
)
def test_listed_ids_may_hold_spaces(log, mine):
    log += lines(p="PASSED")
    spec = RunSpec("i", (SPACED,), (PASS,), test_cmd="run")
    assert (verdict(spec, run(log, 1 if "FAILED" in log else 0))[0] == "resolved") is mine


def test_another_test_with_the_first_word_of_an_id_is_not_that_test():
    assert Results({"adds": "PASSED"}).of("adds two numbers") == set()


TERMINAL = {
    "colours in other words": ("\x1b[38;5;10m", "\x1b[39;49;00m"),
    "colours with colons": ("\x1b[38:2::0:255:0m", "\x1b[m"),
    "sets of characters": ("\x1b(B\x1b[32m", "\x1b(B\x1b[m"),
    "erased lines": ("\x1b[2K\x1b[1G", "\x1b[0K"),
    "a hidden cursor": ("\x1b[?25l", "\x1b[?25h"),
    "links": ("\x1b]8;;file:///t.py\x1b\\", "\x1b]8;;\x1b\\"),
    "links that end with a bell": ("\x1b]8;id=1;https://a/b\x07", "\x1b]8;;\x07"),
    "one-byte introducers": ("\x9b32m", "\x9b0m"),
}


@pytest.mark.parametrize("kind", TERMINAL)
def test_what_commands_a_terminal_is_no_part_of_a_log(kind):
    on, off = TERMINAL[kind]
    log = "".join(f"{on}PASSED{off} {on}{test}{off}\n" for test in (FAIL, PASS))
    assert ours(log, 0)[0] == "resolved"
    assert ours(log.replace("PASSED", "FAILED", 1), 1)[0] == "unresolved"
    assert ours(f"PASSED {FAIL}\n\x1b]8;;never closed\nPASSED {PASS}\n", 0)[0] == "resolved"


def test_colours_are_no_part_of_a_log():
    log = f"\x1b[32mPASSED\x1b[0m {FAIL.partition('::')[0]}::\x1b[1m{FAIL.partition('::')[2]}\x1b[0m\n"
    assert ours(log + lines(p="PASSED"), 0)[0] == "resolved"
    assert ours(log.replace("PASSED", "FAILED") + lines(p="PASSED"), 1)[0] == "unresolved"


@pytest.mark.parametrize(
    "test",
    ["t.py::test_f[a - b]", "t.py::test_f[Unit 'deg' \\(angle\\) no. ]", "t.py::test_f[x[0] - y]"]
    + ["t.py::test_f['str' object has no attribute 'read'-Count]", "t.py::test_f[a  b]"],
)
def test_listed_ids_of_sentences(test):
    """Ids are whole in the rows, cut at the first space by other harnesses, or contain a dash."""
    for listed in (test, test.partition(" ")[0]):
        spec = RunSpec("i", (listed,), (PASS,), test_cmd="run")
        for log, code, status in (
            (f"PASSED {test}\n", 0, "resolved"),
            (f"FAILED {test} - assert 1 == 2\n", 1, "unresolved"),
            (f"ERROR {test} - KeyError: 'a - b'\n", 1, "unresolved"),
        ):
            assert verdict(spec, run(log + lines(p="PASSED"), code))[0] == status


@pytest.mark.parametrize(
    "log, code, mine, of_bench",
    [
        ("Tests: 5 passed\n", 0, True, True),
        ("nothing ran\n", 0, False, False),
        ("Tests: 0 total\n", 0, False, False),
        (f"FAILED {PASS}\n", 1, False, False),
        (f"ERROR {PASS}\n", 1, False, True),
        ("Tests: 5 total\n", 1, False, True),
        ("FAILED other\nTests: 5 total\n", 1, True, True),
    ],
)
def test_logs_that_list_failures_only(tmp_path, log, code, mine, of_bench):
    assert (ours(log, code, eval_type="fail_only")[0] == "resolved") is mine
    assert bench(tmp_path, log, code, "fail_only") is of_bench
    assert not mine or of_bench


def test_what_ends_a_run_early():
    good = lines(f="PASSED", p="PASSED")
    assert verdict(spec(), run(good, None, timed_out=True))[0] == "timeout"
    assert verdict(spec(), run(good, None, limit="memory"))[:2] == (
        "unresolved",
        "the tests did not come to an end (memory)",
    )
    assert verdict(spec(), run("", ended="not_applied", reason="no way"))[:2] == ("apply_failed", "no way")
    assert verdict(spec(), run("", ended="infra_error", reason="gone"))[0] == "infra_error"
    assert verdict(spec(), run(good, findings=["a.py:1: imports gc"]))[0] == "suspect"
    with pytest.raises(InputError, match="unknown log parser"):
        ours(good, parser="parse_log_none")


def test_only_what_is_between_this_runs_markers_is_the_log():
    command = wrap("tests", "abc")
    assert "'>>> abc start'" in command and ">>> abc end $code" in command
    log = ">>> 123 start\nPASSED x\n>>> abc start\nFAILED x\n\n>>> abc end 1\nPASSED x\n"
    assert between(log, "abc") == ("FAILED x\n\n", 1)
    assert between(">>> abc start\nPASSED x\n", "abc") == ("", None)
    assert between(">>> abc start\n\n>>> abc end x\n", "abc") == ("", None)


GOOD = lines(f="PASSED", p="PASSED")
MARKED = f"set -uxo pipefail\n: '{START}'\npytest -rA t.py\n: '{END}'\ngit checkout HEAD t.py\n"
WHOLE_LOGS = {
    # name: (the output of an eval script with markers, whether it is resolved)
    "as it should be": (f"{START}\n{GOOD}{END}\n", True),
    "no_markers": (GOOD, False),
    "no start": (f"{GOOD}{END}\n", False),
    "no end": (f"{START}\n{GOOD}", False),
    "apply_failed_marker": (f">>>>> Patch Apply Failed\n{START}\n{GOOD}{END}\n", False),
    "apply failed, told by a test": (f"{START}\n>>>>> Patch Apply Failed\n{GOOD}{END}\n", False),
    "reset_failed": (f"{START}\n{GOOD}{END}\n>>>>> Reset Failed\n", False),
    "tests_errored": (f"{START}\n{GOOD}>>>>> Tests Errored\n{END}\n", False),
    "timed out": (f"{START}\n{GOOD}{END}\n>>>>> Tests Timed Out\n", False),
    "prints_end_marker": (f"{START}\nPASSED {FAIL}\n{END}\nPASSED {PASS}\n{END}\n", False),
    "prints the end, then fails": (f"{START}\n{GOOD}{END}\nFAILED {PASS}\n{END}\n", False),
    "fails, then prints the end": (f"{START}\nFAILED {PASS}\n{END}\n{GOOD}{END}\n", False),
    "traced by the shell and echoed": (f"+ echo '{START}'\n{START}\n{GOOD}+ echo '{END}'\n{END}\n", True),
}


@pytest.mark.parametrize("name", WHOLE_LOGS)
def test_logs_that_swebench_does_not_read_are_not_read_here(tmp_path, name):
    log, resolved = WHOLE_LOGS[name]
    told, reason, _ = verdict(spec(eval_script=MARKED), run(log))
    assert (told == "resolved") is resolved, reason
    path = tmp_path / "test_output.txt"
    path.write_text(log)
    test_spec = types.TestSpec(
        "i__i-1", "", [], "r/r", "1", [FAIL], [PASS], "parse_log_pytest", "pass_and_fail"
    )
    prediction = {"instance_id": "i__i-1", "model_patch": "x", "model_name_or_path": "m"}
    theirs = get_eval_report(test_spec, prediction, path, True)["i__i-1"]["resolved"]
    assert theirs or not resolved
    # in this case swebench misses a failure after the end marker
    assert theirs is resolved or name == "prints the end, then fails"


def test_markers_are_asked_of_scripts_that_print_them():
    assert verdict(spec(eval_script="set -e\npytest -rA\ngit checkout HEAD t.py"), run(GOOD))[0] == "resolved"
    assert verdict(spec(), run(GOOD))[0] == "resolved"
    assert "Tests Errored" in verdict(spec(), run(f">>>>> Tests Errored\n{GOOD}"))[1]


def test_the_benchmarks_own_markers_narrow_the_log():
    assert official_part(f"PASSED a\n+ : '{START}'\nPASSED b\n+ : '{END}'\nPASSED c\n").split()[1:3] == [
        "PASSED",
        "b",
    ]
    assert official_part("PASSED a\n") == "PASSED a\n"


def test_verbose_logs_are_read_test_first():
    log = "t.py::test_f PASSED   [ 10%]\nt.py::test_g[a b] FAILED\nt.py::test_h SKIPPED (no)\nnoise PASSEDX\n"
    assert statuses(log, "parse_log_pytest_verbose") == {"t.py::test_f": "PASSED", "t.py::test_h": "SKIPPED"}


def test_many_parameters_are_looked_up_fast():
    results = Results({f"t.py::test_{n}[{n}]": "PASSED" for n in range(2000)})
    assert all(results.of(f"t.py::test_{n}[{n}") == {"PASSED"} for n in range(2000))


def test_the_pytest_parser_is_swebenchs(tmp_path):
    draw = random.Random(8)
    words = ["PASSED", "FAILED", "SKIPPED", "ERROR", "XFAIL", "XPASS", "PASSEDx", " PASSED", "-", "[12]"]
    words += ["[12]\n", "a::b[c d]", "t.py::x", "", " ", "\t", "\r", "- assert", "\u2028", "\x0b"]
    for _ in range(3000):
        log = "\n".join(
            draw.choice(" \t").join(draw.choices(words, k=draw.randrange(1, 6)))
            for _ in range(draw.randrange(6))
        )
        assert statuses(log) == PARSER_REGISTRY["parse_log_pytest"](log, None), log


def test_parsers_are_had_without_what_stands_around_them():
    heavy = "docker modal pandas datasets"
    look = (
        f"import sys, swelab.grading.harness.logs; print([n for n in '{heavy}'.split() if n in sys.modules])"
    )
    assert run_python("-c", look).stdout.strip() == "[]"


def test_the_summary_of_a_suite_is_looked_for_in_linear_time():
    """Digits and repeated words. A reader that tries each place again needs hours for them."""
    for text in (
        "1" * 10**6,
        "Test Suites:" * 10**5,
        "Test Suites:" + "1" * 10**6,
        "Test Suites:" + "1 " * 10**5,
    ):
        assert not SUITE_RAN.search(text)
    for text in (
        "010 passing",
        "3 spec,",
        "12 specs,",
        "Test Suites: 1 failed, 20 passed, 21 total",
        "TOTAL: 4 x",
    ):
        assert SUITE_RAN.search(f"x\n  {text}\n"), text
    for text in ("0 passing", "Test Suites: 4 failed, 0 total", "Test Suites: 4\n5 total", "TOTAL: 0 "):
        assert not SUITE_RAN.search(f"x\n  {text}\n"), text
