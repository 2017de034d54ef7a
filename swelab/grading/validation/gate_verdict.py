"""Decides whether a task is kept, from its validation runs."""

from dataclasses import dataclass

from swelab.grading.evidence import GateRun
from swelab.grading.harness.logs import GROUPS
from swelab.grading.validation.null_only import has_no_gold, null_difference, null_sentence
from swelab.outcomes import GradeEnd
from swelab.records.task_records import Task

_REWARD = "its reward"
"""Replaces the list of tests if a script judges the task."""


@dataclass(frozen=True)
class Brief:
    """The facts of a validation run that decide about one task.

    missing: number of the task's listed tests that do not pass. first: the first of these tests, or "".
    """

    status: str
    reason: str
    seconds: float
    unjudged: str
    missing: int
    first: str
    differs: str = ""
    """For a task without a known repair: the first test whose outcome differs from the task's row, or ""."""

    @classmethod
    def of(cls, task: Task, run: GateRun) -> "Brief":
        missing = _missing(task, run)
        first = missing[0] if missing else ""
        differs = null_difference(task, missing) if has_no_gold(task) else ""
        return cls(run.status, run.reason, run.seconds, run.unjudged, len(missing), first, differs)


def sentence(results: dict[str, list[Brief]]) -> tuple[str, str, int]:
    """Returns ("kept" | "flaky" | "broken" | "unjudged", reason, count of gold runs that resolved the
    task).
    """
    if "gold" not in results:
        return (*null_sentence(results["base"]), 0)
    golds = results["gold"]
    good = sum(not each.missing for each in golds)
    if whys := [each.unjudged for found in results.values() for each in found if each.unjudged]:
        return "unjudged", whys[0], good
    if good < len(golds):
        failed = next(each for each in golds if each.missing)
        why = f"{failed.missing} tests do not pass, such as {failed.first}"
        if failed.status not in (GradeEnd.RESOLVED, GradeEnd.UNRESOLVED) or failed.first == _REWARD:
            why = f"{failed.status}: {failed.reason}"
        part = "flaky" if good else "broken"
        return part, f"the gold patch is resolved in {good} of {len(golds)} runs ({why})", good
    if not results["base"][0].missing:
        return "broken", "an empty patch is resolved", good
    if any(each.status == GradeEnd.RESOLVED for each in results.get("reversed", ())):
        return "broken", "the reverse of the gold patch is resolved", good
    return "kept", "", good


def _missing(task: Task, run: GateRun) -> list[str]:
    if task.by_script:
        return [] if run.status == GradeEnd.RESOLVED else [_REWARD]
    judged_tests = run.status in (GradeEnd.RESOLVED, GradeEnd.UNRESOLVED, "ran")
    passed = set(run.passed if judged_tests else ())
    return [test for group in GROUPS for test in task[group] if test not in passed]
