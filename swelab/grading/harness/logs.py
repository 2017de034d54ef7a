"""Parses a test command's log into a status for each test.

The parsers are swebench's (its registry, pinned in `envs/`), and our own for SWE-smith's logs. Only the text
between two marker lines counts as the log. The marker lines contain a nonce of the run.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from swelab.files.text_lines import without_terminal_codes
from swelab.grading.harness.parsers import registry
from swelab.records import InputError, Record
from swelab.records.attempt_records import TestVerdicts

PARSER_REGISTRY = registry()
DEFAULT_PARSER = "parse_log_pytest"
VERBOSE_PARSER = "parse_log_pytest_verbose"
"""Parses lines of `pytest --verbose`: the test's id, then its status."""
UNITTEST_PARSER = "parse_log_unittest_verbose"
"""Parses lines of `unittest --verbose`: the test's name, three dots, its status; then the list of
failures.
"""
GO_PARSER = "parse_log_go_verbose"
"""Parses lines of `go test -v`, including lines of subtests and of packages that did not build."""

GROUPS = ("FAIL_TO_PASS", "PASS_TO_PASS")
PASSED = frozenset({"PASSED"})
PASSED_OR_EXPECTED = frozenset({"PASSED", "XFAIL"})
OFFICIAL_START, OFFICIAL_END = ">>>>> Start Test Output", ">>>>> End Test Output"
OFFICIAL_FAILURES = tuple(
    f">>>>> {what}" for what in ("Patch Apply Failed", "Reset Failed", "Tests Errored", "Tests Timed Out")
)
SUITE_RAN = re.compile(
    r"Executed [1-9]\d* of \d+|TOTAL: [1-9]\d* |Tests:\s+[1-9]|^# tests [1-9]"
    r"|(?<!\d)0*+[1-9]\d*+ (?:passing|specs?,)"
    r"|^(?>.*?Test Suites:).*?(?<!\d)0*+[1-9]\d*+ total",
    re.M,
)
"""Lines in which other test runners report that tests ran.

No part of the pattern is tried twice at the same place, so the time is linear in the log's length.
"""
_STATUSES = ("FAILED", "PASSED", "SKIPPED", "ERROR", "XFAIL")
_SKIPPED_COUNT = re.compile(r"^\[\d+\]$")
_VERBOSE_LINE = re.compile(r"(\S+)\s+(FAILED|PASSED|SKIPPED|ERROR|XFAIL)\b")
_LINES = {
    UNITTEST_PARSER: re.compile(
        r"(?P<test>.+?) \.\.\. (?P<status>ok|FAIL|ERROR|skipped)\b|(?P<worse>FAIL|ERROR): (?P<named>\S+ \S+)"
    ),
    GO_PARSER: re.compile(
        r"--- (?P<status>PASS|FAIL|SKIP): (?P<test>\S+)|(?P<worse>FAIL)[:\s]\s*(?P<named>\S+)"
    ),
}
LINEAR_PARSERS = frozenset({DEFAULT_PARSER, VERBOSE_PARSER, *_LINES})
"""Our own parsers, which take time linear in the log's length."""
_MEANS = {"ok": "PASSED", "PASS": "PASSED", "FAIL": "FAILED", "SKIP": "SKIPPED", "skipped": "SKIPPED"}


def statuses(log: str, parser: str = DEFAULT_PARSER) -> dict[str, str]:
    """Returns the status (PASSED, FAILED, ERROR, SKIPPED, XFAIL ...) by test id.

    Terminal codes, such as colours, are no part of the log. Raises InputError if the parser is unknown.
    """
    log = without_terminal_codes(log)
    if parser == VERBOSE_PARSER:
        found = (_VERBOSE_LINE.match(line) for line in log.split("\n"))
        return {match[1]: match[2] for match in found if match}
    if parser in _LINES:
        return _by_lines(log, _LINES[parser])
    if parser == DEFAULT_PARSER:
        return _pytest_statuses(log)
    if parser not in PARSER_REGISTRY:
        raise InputError(f"unknown log parser {parser!r}", expected="one of swebench's parsers")
    return PARSER_REGISTRY[parser](log, None)


def _by_lines(log: str, pattern: re.Pattern[str]) -> dict[str, str]:
    """Returns the status by test id.

    Go packages may share a test id: the id has failed if any of its tests has.
    """
    found: dict[str, str] = {}
    for match in filter(None, (pattern.match(line.strip()) for line in log.split("\n"))):
        test, word = match["test"] or match["named"], match["status"] or match["worse"]
        if found.get(test) not in ("FAILED", "ERROR"):
            found[test] = _MEANS.get(word, word)
    return found


def _pytest_statuses(log: str) -> dict[str, str]:
    """Returns the same as swebench's parse_log_pytest in a fraction of the time.

    A test compares the results.
    """
    statuses_by_test: dict[str, str] = {}
    for line in log.split("\n"):
        if line.startswith(_STATUSES):
            words = (line.replace(" - ", " ") if line.startswith("FAILED") else line).split(None, 2)
            if len(words) > 1 and not (words[0] == "SKIPPED" and _SKIPPED_COUNT.match(words[1])):
                statuses_by_test[words[1]] = words[0]
    return statuses_by_test


def between(log: str, nonce: str) -> tuple[str, int | None]:
    """Returns (text between a run's markers, exit code of the test command), or ("", None) if a marker is
    missing.
    """
    start, end = f"\n>>> {nonce} start\n", f"\n>>> {nonce} end "
    _, found, rest = ("\n" + log).partition(start)
    body, closed, tail = rest.rpartition(end)
    code = tail.partition("\n")[0].strip()
    if not found or not closed or not code.isdigit():
        return "", None
    return body + "\n", int(code)


def official_part(log: str) -> str:
    """Returns the output between the benchmark's own markers, or the whole log if a marker is missing."""
    _, found, rest = log.partition(OFFICIAL_START)
    body, closed, _ = rest.rpartition(OFFICIAL_END)
    return body if found and closed else log


def official_statuses(log: str, parser: str) -> dict[str, str]:
    """Returns the status by test id from the text between the benchmark's markers.

    If a marker occurs more than once, swebench reads up to the first end marker. In that case a test counts
    as passed only if it also passed in the text up to the last end marker. Raises InputError if the parser is
    unknown.
    """
    whole = official_part(log)
    by_test = statuses(whole, parser)
    first = log.split(OFFICIAL_START)[1].split(OFFICIAL_END)[0] if OFFICIAL_START in log else whole
    if first == whole or not (told := statuses(first, parser)):
        return by_test
    return {
        test: told.get(test, "ERROR") if status in PASSED_OR_EXPECTED else status
        for test, status in by_test.items()
    }


def official_refusal(log: str, marked: bool) -> str:
    """Returns why swebench would reject a log, or "".

    swebench rejects a log with a line that reports a failed run. If `marked`, it also rejects a log without
    the markers that the eval script prints.
    """
    for marker in OFFICIAL_FAILURES:
        if marker in log:
            return f"the log says {marker!r}"
    missing = [each for each in (OFFICIAL_START, OFFICIAL_END) if marked and each not in log]
    return f"the log has no line {missing[0]!r}" if missing else ""


class Results:
    """Statuses by test id from one source of evidence, looked up by the ids that a task lists."""

    def __init__(self, status: dict[str, str]):
        self.status = status
        self._cut: dict[str, list[str]] | None = None

    def of(self, test: str) -> set[str]:
        """Returns the statuses of a listed test; empty if the test is absent.

        Test ids may be truncated at the first space, in the log or in the task. A truncated listed id may
        match several tests.
        """
        if test in self.status:
            return {self.status[test]}
        cut = test.partition(" ")[0]
        if cut in self.status and cut.count("[") > cut.count("]"):
            return {self.status[cut]}
        if test.count("[") <= test.count("]"):
            return set()
        if self._cut is None:
            self._cut = defaultdict(list)
            for name in self.status:
                self._cut[name.partition("[")[0]].append(name)
        names = self._cut.get(test.partition("[")[0], [])
        return {self.status[name] for name in names if name.startswith(test)}


def judge(
    task: Record, status: dict[str, str], accepts: Callable[[str, str, set[str]], bool] | None = None
) -> TestVerdicts:
    """Returns the per-test verdicts, in the task's order.

    A test does not succeed if it is absent from the log, skipped, failed or in error. So a prediction gains
    nothing by removing a test. If a test must be repaired, its expected failure does not count as success.
    `accepts(group, test, statuses)`, if given, replaces these rules.
    """
    results = Results(status)
    accepts = accepts or has_passed
    return _split(task, lambda group, test: accepts(group, test, results.of(test)))


def has_passed(group: str, test: str, statuses: set[str]) -> bool:
    """Returns whether a listed test succeeded: it has at least one status, and all its statuses are
    successes.
    """
    return bool(statuses) and statuses <= (PASSED if group == GROUPS[0] else PASSED_OR_EXPECTED)


def not_failed(group: str, test: str, statuses: set[str]) -> bool:
    """Returns whether a listed test did not fail, for logs that list only failures: an absent test
    succeeded.
    """
    return not statuses & {"FAILED", "ERROR"}


def _split(task: Record, good: Callable[[str, str], bool]) -> TestVerdicts:
    verdict = {}
    for group in GROUPS:
        success = [test for test in task[group] if good(group, test)]
        passes = set(success)
        verdict[group] = {"success": success, "failure": [test for test in task[group] if test not in passes]}
    return TestVerdicts.of(verdict)


def failed_tests(tests: TestVerdicts) -> Iterable[str]:
    """Returns the listed tests that did not succeed."""
    return [test for group in tests.values() for test in group.failure]
