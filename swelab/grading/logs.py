"""From a test command's log to a status per test.

The parsers are swebench's (its registry, pinned in `envs/`); what counts as the log is ours: only
the text between two marker lines that carry a nonce of this very run.
"""

import os

for _name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
    os.environ.setdefault(_name, "1")

from swebench.harness.log_parsers import PARSER_REGISTRY  # noqa: E402

from swelab.records import InputError, Record  # noqa: E402

PASSED = frozenset({"PASSED", "XFAIL"})
DEFAULT_PARSER = "parse_log_pytest"


def statuses(log: str, parser: str = DEFAULT_PARSER) -> dict[str, str]:
    """Status (PASSED, FAILED, ERROR, SKIPPED, XFAIL ...) by test id. Raises InputError (unknown parser)."""
    if parser not in PARSER_REGISTRY:
        raise InputError(f"unknown log parser {parser!r}", expected="one of swebench's parsers")
    return PARSER_REGISTRY[parser](log, None)


def between(log: str, nonce: str) -> tuple[str, int | None]:
    """(text between a run's markers, the test command's exit code); ('', None) when a marker is missing."""
    start, end = f"\n>>> {nonce} start\n", f"\n>>> {nonce} end "
    _, found, rest = ("\n" + log).partition(start)
    body, closed, tail = rest.rpartition(end)
    code = tail.partition("\n")[0].strip()
    if not found or not closed or not code.isdigit():
        return "", None
    return body + "\n", int(code)


def wrap(test_cmd: str, nonce: str) -> str:
    """A shell command that runs `test_cmd` between the markers and tells its exit code."""
    return f"echo; echo '>>> {nonce} start'; ( {test_cmd}\n); code=$?; echo; echo \">>> {nonce} end $code\""


def judge(task: Record, status: dict[str, str]) -> Record:
    """Per-test verdicts {"FAIL_TO_PASS": {"success", "failure"}, "PASS_TO_PASS": {...}}, in the task's order.

    A test that is absent from the log, skipped, failed or in error is no success: a prediction
    may not make a test go away.
    """
    verdict: Record = {}
    for group in ("FAIL_TO_PASS", "PASS_TO_PASS"):
        ok = [test for test in task[group] if status.get(test) in PASSED]
        passed = set(ok)
        verdict[group] = {"success": ok, "failure": [test for test in task[group] if test not in passed]}
    return verdict
