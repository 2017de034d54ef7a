"""Parses a test command's log into a status for each test.

The parsers are swebench's (its registry, pinned in `envs/`), and ours for SWE-smith's logs. Only the text
between two marker lines counts as the log. The lines carry a nonce of the run.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable

from swelab.grading.harness.parsers import registry
from swelab.records import InputError, Record
from swelab.records.attempt_records import TestVerdicts

PARSER_REGISTRY = registry()
DEFAULT_PARSER = "parse_log_pytest"
VERBOSE_PARSER = "parse_log_pytest_verbose"
"""Lines of `pytest --verbose`: the test's id first, then its status."""
UNITTEST_PARSER = "parse_log_unittest_verbose"
"""Lines of `unittest --verbose`: the test's name, three dots, its status; then the list of failures."""
GO_PARSER = "parse_log_go_verbose"
"""Lines of `go test -v`, also of subtests and of packages that did not build."""

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
"""Lines of other test runners that report that tests ran. No part of the pattern is tried twice at one place,
so the time for a log is linear in its length."""
_STATUSES = ("FAILED", "PASSED", "SKIPPED", "ERROR", "XFAIL")
_TERMINAL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]|\x1b\][^\x07\x1b\n]*+(?:\x07|\x1b\\)|\x1b[ -/]++[0-~]|\x1b[=>78]"
)
"""Control sequences of terminals (ECMA-48): colours, erased lines, links, sets of characters."""
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
"""Our own parsers: the time for a log is linear in its length."""
_MEANS = {"ok": "PASSED", "PASS": "PASSED", "FAIL": "FAILED", "SKIP": "SKIPPED", "skipped": "SKIPPED"}


def statuses(log: str, parser: str = DEFAULT_PARSER) -> dict[str, str]:
    """Status (PASSED, FAILED, ERROR, SKIPPED, XFAIL ...) by test id. Raises InputError (unknown parser)."""
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
    """Status by test id. Tests of several Go packages may share an id: if one failed, the id failed."""
    found: dict[str, str] = {}
    for match in filter(None, (pattern.match(line.strip()) for line in log.split("\n"))):
        test, word = match["test"] or match["named"], match["status"] or match["worse"]
        if found.get(test) not in ("FAILED", "ERROR"):
            found[test] = _MEANS.get(word, word)
    return found


def _pytest_statuses(log: str) -> dict[str, str]:
    """Like swebench's parse_log_pytest, but needs a fraction of its time; a test compares the results."""
    found: dict[str, str] = {}
    for line in log.split("\n"):
        if line.startswith(_STATUSES):
            words = (line.replace(" - ", " ") if line.startswith("FAILED") else line).split(None, 2)
            if len(words) > 1 and not (words[0] == "SKIPPED" and _SKIPPED_COUNT.match(words[1])):
                found[words[1]] = words[0]
    return found


def between(log: str, nonce: str) -> tuple[str, int | None]:
    """(text between a run's markers, the test command's exit code); ('', None) when a marker is missing."""
    start, end = f"\n>>> {nonce} start\n", f"\n>>> {nonce} end "
    _, found, rest = ("\n" + log).partition(start)
    body, closed, tail = rest.rpartition(end)
    code = tail.partition("\n")[0].strip()
    if not found or not closed or not code.isdigit():
        return "", None
    return body + "\n", int(code)


def official_part(log: str) -> str:
    """Returns the output between the benchmark's own markers; the whole log if a marker is missing."""
    _, found, rest = log.partition(OFFICIAL_START)
    body, closed, _ = rest.rpartition(OFFICIAL_END)
    return body if found and closed else log


def official_statuses(log: str, parser: str) -> dict[str, str]:
    """Status by test id of the text between the benchmark's markers. Raises InputError (unknown parser).

    If a marker occurs more than once, swebench reads up to the first end marker. Then a test counts as passed
    only if it passed both in that text and in the whole log. Terminal codes, such as colours, are removed
    first.
    """
    log = _TERMINAL.sub("", log) if "\x1b" in log or "\x9b" in log else log
    whole = official_part(log)
    found = statuses(whole, parser)
    first = log.split(OFFICIAL_START)[1].split(OFFICIAL_END)[0] if OFFICIAL_START in log else whole
    if first == whole or not (told := statuses(first, parser)):
        return found
    return {
        test: told.get(test, "ERROR") if status in PASSED_OR_EXPECTED else status
        for test, status in found.items()
    }


def official_refusal(log: str, marked: bool) -> str:
    """Why swebench rejects a log: it has a line that reports a failed run, or lacks markers that its script
    prints (`marked`). Else ""."""
    for marker in OFFICIAL_FAILURES:
        if marker in log:
            return f"the log says {marker!r}"
    missing = [each for each in (OFFICIAL_START, OFFICIAL_END) if marked and each not in log]
    return f"the log has no line {missing[0]!r}" if missing else ""


class Results:
    """Statuses by test id from one channel, looked up by the ids that a task lists."""

    def __init__(self, status: dict[str, str]):
        self.status = status
        self._cut: dict[str, list[str]] | None = None

    def of(self, test: str) -> set[str]:
        """Statuses of a listed test; none if it is absent. The log or the task may have cut its id at the
        first space; a listed id that is cut may fit several tests."""
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
    task: Record,
    status: dict[str, str],
    accepts: Callable[[str, str, set[str]], bool] | None = None,
) -> TestVerdicts:
    """Per-test verdicts, in the task's order.

    A test that is absent from the log, skipped, failed or in error does not succeed, so a prediction gains
    nothing by removing a test. If the test must be repaired, an expected failure does not count as success.
    `accepts(group, test, statuses)`, if given, replaces these rules.
    """
    results = Results(status)
    accepts = accepts or passed
    return _split(task, lambda group, test: accepts(group, test, results.of(test)))


def passed(group: str, test: str, statuses: set[str]) -> bool:
    """Whether a listed test succeeded: it has at least one status, and all its statuses are successes."""
    return bool(statuses) and statuses <= (PASSED if group == GROUPS[0] else PASSED_OR_EXPECTED)


def not_failed(group: str, test: str, statuses: set[str]) -> bool:
    """Like `passed`, for logs that list only failures: a test that is absent succeeded."""
    return not statuses & {"FAILED", "ERROR"}


def _split(task: Record, good: Callable[[str, str], bool]) -> TestVerdicts:
    verdict = {}
    for group in GROUPS:
        success = [test for test in task[group] if good(group, test)]
        passes = set(success)
        verdict[group] = {"success": success, "failure": [test for test in task[group] if test not in passes]}
    return TestVerdicts.of(verdict)


def missed(tests: TestVerdicts) -> Iterable[str]:
    """The listed tests that did not succeed."""
    return [test for group in tests.values() for test in group.failure]
