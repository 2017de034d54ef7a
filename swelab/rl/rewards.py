"""Rewards: functions that convert a grade to a number, on which the policy is trained."""

from collections.abc import Callable

from swelab.outcomes import FORGED_GRADES, GradeEnd
from swelab.records import Record
from swelab.records.attempt_records import Grade


def zero_or_one(grade: Record) -> float:
    """Returns 1 for a resolved task, otherwise 0."""
    return float(grade["resolved"])


def plus_or_minus_one(grade: Record) -> float:
    """Returns 1 for a resolved task, otherwise -1."""
    return 1.0 if grade["resolved"] else -1.0


def share_of_tests(grade: Record) -> float:
    """Returns the share of the listed tests that have the required result. Returns 0 if no test ran, or if
    the patch forged test results or could have forged them (`Grade.doubt`)."""
    if grade["status"] in FORGED_GRADES or grade.get("doubt") or not grade.get("tests_status"):
        return 0.0
    lists = grade["tests_status"].values()
    good = sum(len(each["success"]) for each in lists)
    total = good + sum(len(each["failure"]) for each in lists)
    return good / total if total else 0.0


def witnessed_only(reward: Callable[[Record], float]) -> Callable[[Record], float]:
    """Returns a reward function like `reward` that treats a resolved task without witness evidence as
    suspect."""

    def with_suspects(grade: Record) -> float:
        if not grade["resolved"] or Grade.of(grade).evidence == "witnessed":
            return reward(grade)
        return reward(grade | {"resolved": False, "status": GradeEnd.SUSPECT})

    return with_suspects


def reward_of(name: str, evidence: str) -> Callable[[Record], float]:
    """Returns the reward function for a recipe's `method.reward` and `method.evidence`."""
    return witnessed_only(REWARDS[name]) if evidence == "witnessed" else REWARDS[name]


SHARES = frozenset({"share_of_tests"})
"""The rewards that pay for single tests. Their grades need `Bench.shares`."""

REWARDS: dict[str, Callable[[Record], float]] = {
    "solved": zero_or_one,
    "signed": plus_or_minus_one,
    "share_of_tests": share_of_tests,
}
"""Maps a reward's name in recipes to its function. A patch that forged test results, or could have, gets the
lowest reward."""
