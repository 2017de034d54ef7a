"""Selects tasks by a policy's pass rate, computed from graded attempts.

A pass rate shows how hard a task is for that policy. `difficulty.py` rates tasks in another way: a model
reads issue and patch, and makes no attempt.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from swelab.configs.kinds.subset import AttemptedSubset
from swelab.outcomes import LOST_GRADES
from swelab.records import InputError, Record
from swelab.records.attempt_records import Grade
from swelab.records.task_records import Task


@dataclass(frozen=True)
class PassRate:
    """A policy's results on a task. attempts: number of judged attempts. solved: how many were successful."""

    solved: int
    attempts: int

    @property
    def share(self) -> float:
        """Share of solved attempts, in [0, 1]. There is at least one attempt."""
        return self.solved / self.attempts


@dataclass
class TaskSelection:
    """The selected tasks.

    kept: instance ids of selected tasks, in order. reasons: maps the ids of other tasks to the reason for
    their exclusion. rates: maps the ids of all attempted tasks to pass rates.
    """

    kept: list[str] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    rates: Mapping[str, PassRate] = field(default_factory=dict)

    @property
    def facts(self) -> Record:
        """Facts for the manifest: excluded tasks by reason, and how often each task was solved."""
        reasons = Counter(self.reasons.values())
        return {
            "drops": dict(sorted(reasons.items())),
            "pass_rates": {name: self._counts(name) for name in self.kept},
            "left_out": {name: {"reason": why, **self._counts(name)} for name, why in self.reasons.items()},
        }

    def _counts(self, name: str) -> dict[str, int]:
        rate = self.rates.get(name)
        return {"solved": rate.solved, "attempts": rate.attempts} if rate else {"attempts": 0}


def pass_rates(grades: Iterable[Grade]) -> dict[str, PassRate]:
    """Maps instance ids to pass rates.
    Attempts that were lost to infrastructure are excluded. Other failures count as attempts."""
    solved, attempts = Counter[str](), Counter[str]()
    for grade in grades:
        if grade.status not in LOST_GRADES:
            attempts[grade.instance_id] += 1
            solved[grade.instance_id] += grade.resolved
    return {name: PassRate(solved[name], count) for name, count in attempts.items()}


def choose(tasks: Iterable[Task], rates: Mapping[str, PassRate], recipe: AttemptedSubset) -> TaskSelection:
    """Selects the tasks whose pass rate is within the recipe's bounds, in the recipe's order.

    `easy-first` puts tasks with a high pass rate first; tasks with equal rates keep the order of `tasks`.
    Raises InputError if no task is left.
    """
    if not rates:
        what = f"no attempt at a task of {recipe.subset} was graded"
        raise InputError(what, expected=f"grades of policy {recipe.policy} on it")
    selection = TaskSelection(rates=rates)
    for task in tasks:
        name = task.instance_id
        if reason := _why_not(rates.get(name), recipe):
            selection.reasons[name] = reason
        else:
            selection.kept.append(name)
    if not selection.kept:
        what = f"no task of {recipe.subset} is solved as often as asked: {selection.facts['drops']}"
        raise InputError(what, expected=f"other bounds, or more `samples` of policy {recipe.policy}")
    if recipe.order == "easy-first":
        selection.kept.sort(key=lambda name: -rates[name].share)
    return selection


def _why_not(rate: PassRate | None, recipe: AttemptedSubset) -> str:
    if rate is None:
        return "not_attempted"
    if rate.share < recipe.at_least:
        return "seldom_solved" if rate.solved else "never_solved"
    if rate.share > recipe.at_most:
        return "often_solved" if rate.solved < rate.attempts else "always_solved"
    return ""
