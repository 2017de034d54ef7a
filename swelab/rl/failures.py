"""Decides how a rollout that ended badly affects training.

A recipe has three switches. Each switch is a list of rollout ends:

* mask: the rollout's tokens are not trained;
* leave_baseline: the same, and the rollout's reward is excluded from its group's mean and deviation;
* drop_group: the rollout's whole group is not trained.

A rollout that was lost to infrastructure says nothing about the policy. So it is always masked and excluded
from the baseline. Its group is dropped only if the recipe lists the rollout's end under drop_group.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from swelab.configs.kinds.rl import Failures
from swelab.outcomes import LOST_GRADES, LOST_ROLLOUTS, GradeEnd, RolloutEnd
from swelab.rl.advantages import is_constant


@dataclass(frozen=True)
class Attempt:
    """Facts about a rollout in a complete group. reward: None if nothing could be graded. trained_tokens:
    number of tokens that the policy sampled and that may be trained."""

    end: RolloutEnd
    grade: GradeEnd | None
    reward: float | None
    trained_tokens: int

    @property
    def lost(self) -> bool:
        """Whether the sandbox, the model's server or the grader's sandbox failed."""
        return self.end in LOST_ROLLOUTS or self.grade is None or self.grade in LOST_GRADES


@dataclass(frozen=True)
class SwitchedGroup:
    """The result of applying the switches to a group.

    rewards: the reward of each rollout, or None for a rollout that is excluded from the baseline. trained:
    whether each rollout is trained. dropped: why the whole group is not trained, or "". untrained: for each
    rollout, why it is not trained regardless of its group, or "".
    """

    rewards: list[float | None]
    trained: list[bool]
    dropped: str = ""
    untrained: tuple[str, ...] = ()

    def reason(self, place: int) -> str:
        """Returns why the rollout with index `place` in the group is not trained, or "" if it is trained. If
        there are reasons for both the rollout and its group, returns the rollout's reason."""
        own = self.untrained[place] if self.untrained else ""
        return own or (f"group: {self.dropped}" if self.dropped else "")


def treat(group: Sequence[Attempt], failures: Failures, keep_constant: bool = False) -> SwitchedGroup:
    """Applies the switches to a group. A group with constant rewards is dropped unless `keep_constant`."""
    away, masked = set(failures.leave_baseline), {*failures.mask, *failures.leave_baseline}
    rewards: list[float | None] = []
    untrained: list[str] = []
    dropped = ""
    for attempt in group:
        ends = {attempt.end, attempt.grade} - {None}
        outside = attempt.lost or bool(ends & away)
        rewards.append(None if outside else attempt.reward)
        untrained.append(_exclusion_reason(attempt, sorted(map(str, ends & masked))))
        if why := sorted(str(end) for end in ends & set(failures.drop_group)):
            dropped = dropped or f"{why[0]} in the group"
    if not dropped and is_constant(rewards):
        known = any(reward is not None for reward in rewards)
        dropped = "" if keep_constant and known else "constant" if known else "all lost"
    return SwitchedGroup(rewards, [not (dropped or why) for why in untrained], dropped, tuple(untrained))


def _exclusion_reason(attempt: Attempt, switched: Sequence[str]) -> str:
    """Returns why a rollout is not trained regardless of its group, or "". switched: those ends of the
    rollout that the recipe masks."""
    if attempt.lost:
        return "infrastructure"
    return switched[0] if switched else "" if attempt.trained_tokens else "no token sampled"


@dataclass
class Tally:
    """Counts a step's rollouts and groups, including all that were excluded."""

    groups: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    masked: int = 0

    def add(self, group: Iterable[Attempt], treated: SwitchedGroup) -> None:
        """Counts one group."""
        self.groups += 1
        if treated.dropped:
            self.dropped[treated.dropped] += 1
        for attempt, trained in zip(group, treated.trained, strict=True):
            self.ends[str(attempt.grade or attempt.end)] += 1
            self.lost += attempt.lost
            self.masked += not trained
