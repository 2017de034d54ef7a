"""Validates tasks without a known repair: the same tests must fail in every run of the unchanged code."""

from collections.abc import Sequence
from typing import Protocol

from swelab.records import Record
from swelab.records.task_records import NULL_ONLY, Task


class NullBrief(Protocol):
    """The facts of a run of the unchanged code that decide about one task."""

    @property
    def unjudged(self) -> str:
        """Why the run has no result, or ""."""

    @property
    def missing(self) -> int:
        """How many listed tests do not pass."""

    @property
    def differs(self) -> str:
        """The first test whose outcome differs from the task's row, or ""."""


def has_no_gold(task: Task) -> bool:
    """Returns whether a task has no known repair, although it has tests or a script to judge one."""
    return task.answers == "none" or (task.by_script and not task.solution_tar)


def null_difference(task: Task, missing: Sequence[str]) -> str:
    """Returns the first test whose outcome differs from the row's lists (failing or passing), or ""."""
    failed = set(missing)
    wrong = [test for test in task.FAIL_TO_PASS if test not in failed]
    wrong += [test for test in task.PASS_TO_PASS if test in failed]
    return wrong[0] if wrong else ""


def null_sentence(runs: Sequence[NullBrief]) -> tuple[str, str]:
    """Returns ("kept" | "flaky" | "broken" | "unjudged", reason) from a task's runs of the unchanged code."""
    if whys := [run.unjudged for run in runs if run.unjudged]:
        return "unjudged", whys[0]
    if not all(run.missing for run in runs):
        return "broken", "an empty patch is resolved"
    other = [run.differs for run in runs if run.differs]
    if other:
        return "flaky", f"{len(other)} of {len(runs)} null runs differ from the row, such as in {other[0]}"
    return "kept", ""


def null_facts(task: Task) -> Record:
    """Returns the lock's fields about the validation of a task without a known repair.

    Returns {} for other tasks.
    """
    if not has_no_gold(task):
        return {}
    if task.null_run is None:
        return {"validated": NULL_ONLY}
    facts: Record = {"validated": NULL_ONLY, "fails": list(task.FAIL_TO_PASS)}
    facts["collected"] = task.null_run.collected
    return facts if task.null_run.imports else facts | {"imports": False}
