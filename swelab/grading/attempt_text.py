"""Formats an attempt for a person: task, patch, tests, reason for the verdict, log, how to rerun it."""

import os
import re
import textwrap
from collections.abc import Callable, Iterator, Sequence

from swelab.files.text_lines import lines_of
from swelab.grading.evidence import GateRun, RunEvidence
from swelab.grading.harness import logs
from swelab.grading.harness.spec import read_spec
from swelab.grading.kept_runs import KeptAttempt
from swelab.outcomes import GradeEnd, RolloutEnd
from swelab.records.attempt_records import Grade, TestVerdicts
from swelab.records.task_records import Task

MOST_LINES = 60
"""Maximum number of log lines to show, counted from the end of the log."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MOST_TESTS = 20
"""Maximum number of passed tests to list."""


def listing(name: str, attempts: Sequence[KeptAttempt]) -> str:
    """Returns a text that lists the attempts at a task, each with the command that shows it."""
    rows = [f"{len(attempts)} runs of {name}; to see one of them:", ""]
    for attempt in attempts:
        rows += [f"{attempt.name}: {_verdict(attempt.row)}", f"    {attempt.command}"]
    return "\n".join(rows)


def describe_attempt(
    attempt: KeptAttempt,
    task: Task | None,
    patch: str | None,
    run: RunEvidence | None,
    place: str,
    bold: bool,
) -> str:
    """Returns everything about one attempt as text.

    run: the run's evidence. place: the path of the file that contains the evidence. bold: whether headings
    are bold.
    """
    found = ((title, plain(text)) for title, text in _parts(attempt, task, patch, run, place))
    return "\n".join(
        f"{_bold(title) if bold else title}\n{textwrap.indent(text.rstrip(), '    ', lambda line: True)}\n"
        for title, text in found
    )


def plain(text: str) -> str:
    """Returns `text` without terminal control characters, since output of tests and patches is untrusted."""
    return _CONTROLS.sub("?", text.replace("\r\n", "\n").encode("utf-8", "replace").decode())


def _bold(title: str) -> str:
    return title if os.environ.get("NO_COLOR") else f"\x1b[1m{title}\x1b[0m"


def _parts(
    attempt: KeptAttempt, task: Task | None, patch: str | None, run: RunEvidence | None, place: str
) -> Iterator[tuple[str, str]]:
    """Yields the parts of the text about an attempt, as (title, text)."""
    row = attempt.row
    yield row.instance_id, f"{attempt.name}\n{_verdict(row)}"
    yield "Task", _task(task) if task else "its row is not there"
    if patch is None:
        yield "Patch", "not kept"
    else:
        yield "Patch", patch or "empty"
    yield "Tests", "\n".join(_tests(row, task, run))
    yield "What decided", "\n".join(_evidence(row, run))
    yield f"Test log{f' ({place})' if run else ''}", _tail(run.log if run else "")
    again = f"{attempt.command} --run"
    own = f" '{task.test_cmd}'" if task and task.test_cmd else " 'a command of yours'"
    yield (
        "Run it again, in a fresh sandbox of the same kind",
        f"{again}\n{again}{own}\n"
        "The first grades it anew and changes no file. The second runs a command on the patched code.",
    )


def _verdict(row: Grade | GateRun) -> str:
    told = row.status + (f": {row.reason}" if row.reason else "")
    outcome = row.outcome if isinstance(row, Grade) else RolloutEnd.SUBMITTED
    return told if outcome == RolloutEnd.SUBMITTED else f"{told} (the rollout ended as {outcome})"


def _task(task: Task) -> str:
    spec = read_spec(task)
    listed = (
        f"tests to repair: {len(spec.fail_to_pass)}; tests that must still pass: {len(spec.pass_to_pass)}"
    )
    rows = [
        f"repository: {task.get('repo', '')}",
        "judged by the reward of its own script" if spec.verifier else listed,
        f"test command: {spec.test_cmd or ('tests/test.sh' if spec.verifier else 'an eval script')}",
        "",
        task.get("problem_statement") or "no problem statement",
    ]
    return "\n".join(rows)


def _tests(row: Grade | GateRun, task: Task | None, run: RunEvidence | None) -> Iterator[str]:
    """Yields one line for each test, failing tests first.

    The line has the outcomes in the log and the observer's record.
    """
    groups = row.tests_status if isinstance(row, Grade) else _passed_or_not(row, task)
    if not groups:
        yield "no verdict on single tests"
        return
    told = _test_line(task, run)
    for group, parts in groups.items():
        good, bad = parts.success, parts.failure
        yield f"{group}: {len(good)} of {len(good) + len(bad)} pass"
        yield from (f"  not passed  {test}{told(test)}" for test in bad)
        yield from (f"  passed      {test}" for test in good[:MOST_TESTS])
        if len(good) > MOST_TESTS:
            yield f"  passed      and {len(good) - MOST_TESTS} more"


def _passed_or_not(row: GateRun, task: Task | None) -> TestVerdicts | None:
    """Returns the per-test verdicts of a validation run.

    The row of such a run lists only the tests that passed.
    """
    if not task or row.status not in (GradeEnd.RESOLVED, GradeEnd.UNRESOLVED, "ran"):
        return None
    passed = set(row.passed)
    return logs.judge(task, {}, lambda group, test, statuses: test in passed)


def _test_line(task: Task | None, run: RunEvidence | None) -> Callable[[str], str]:
    """Returns a function that maps a test id to the test's outcomes in the log and the record."""
    if not task or not run or "log" not in run:
        return lambda test: ""
    found = logs.Results(logs.statuses(logs.official_part(run.log), read_spec(task).parser))
    seen = run.observed.outcomes if run.observed else {}

    def line_of(test: str) -> str:
        said = f"log: {', '.join(sorted(found.of(test))) or 'nothing'}"
        return f" ({said}; observer: {seen.get(test, 'nothing')})" if run.observed else f" ({said})"

    return line_of


def _evidence(row: Grade | GateRun, run: RunEvidence | None) -> Iterator[str]:
    """Yields the reason for the verdict, and the content of each source of evidence."""
    yield f"verdict: {_verdict(row)}"
    if run is None:
        yield "no run is kept: it was never started, or it was kept by an older version"
        return
    if run.ended != "ran":
        yield f"the run ended as {run.ended}: {run.reason or 'nothing was run'}"
    yield from (f"the patch's code: {finding}" for finding in run.get("findings", ()))
    if "code" in run:
        limit = f" (limit met: {run.limit})" if run.limit else ""
        yield f"exit code of the tests: {run['code']}{limit}"
    if "guarded" in run:
        sealed = run.sealed if run.guarded else "none, as pytest does not run these tests"
        yield f"observer's record: {sealed}"
    if seen := run.observed:
        yield from (f"the runner was changed: {change}" for change in seen.changed)
        yield from (f"the patched code used a reserved power: {power}" for power in seen.powers)
    if isinstance(row, Grade) and row.witness:
        why = f": {row.witness.reason}" if row.witness.reason else ""
        yield f"the witness: {row.evidence.replace('_', ' ')}, {row.witness.bits:g} bits{why}"
    if run.get("echo"):
        yield f"the second run, with spoiled tests: {run.echo}"


def _tail(log: str) -> str:
    lines = lines_of(log)
    if not lines:
        return "none: no test was run"
    if len(lines) <= MOST_LINES:
        return "\n".join(lines)
    left = len(lines) - MOST_LINES
    return "\n".join([f"({left} lines before these; --log prints all)", *lines[-MOST_LINES:]])
