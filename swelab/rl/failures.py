"""Effect on training of a rollout that did not end well: three switches, set by how it ended.

* mask: its tokens are not trained;
* leave_baseline: its reward enters no mean and no deviation of its group;
* drop_group: its whole group is not trained.

A rollout that infrastructure lost is always masked and in no baseline. It drops its group only if the recipe
lists its end under drop_group, because a dead sandbox gives no information about the policy.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from swelab.configs.kinds.rl import Failures
from swelab.outcomes import LOST_GRADES, LOST_ROLLOUTS, GradeEnd, RolloutEnd
from swelab.rl.advantages import is_constant


@dataclass(frozen=True)
class Attempt:
    """Facts about a rollout when its group is complete. `reward` is None if nothing could be graded.

    `trained_tokens` is the number of tokens that the policy sampled and that may be trained.
    """

    end: RolloutEnd
    grade: GradeEnd | None
    reward: float | None
    trained_tokens: int

    @property
    def lost(self) -> bool:
        """Whether infrastructure failed: the sandbox, the model's server, or the grader's sandbox."""
        return self.end in LOST_ROLLOUTS or self.grade is None or self.grade in LOST_GRADES


@dataclass(frozen=True)
class Treated:
    """The result of the switches for a group.

    rewards: None for each rollout that has left the baseline. trained: whether each rollout is trained.
    dropped: why the whole group is not trained, or "". untrained: for each rollout, why it is not trained
    even if its group is, or "".
    """

    rewards: list[float | None]
    trained: list[bool]
    dropped: str = ""
    untrained: tuple[str, ...] = ()

    def reason(self, place: int) -> str:
        """Why the rollout at `place` of the group is not trained: its own reason, or the reason of its group;
        "" if it is trained."""
        own = self.untrained[place] if self.untrained else ""
        return own or (f"group: {self.dropped}" if self.dropped else "")


def treat(group: Sequence[Attempt], failures: Failures, keep_constant: bool = False) -> Treated:
    """Applies the switches to a group. A constant group is dropped unless `keep_constant`."""
    away, masked = set(failures.leave_baseline), {*failures.mask, *failures.leave_baseline}
    rewards: list[float | None] = []
    untrained: list[str] = []
    dropped = ""
    for attempt in group:
        ends = {attempt.end, attempt.grade} - {None}
        outside = attempt.lost or bool(ends & away)
        rewards.append(None if outside else attempt.reward)
        untrained.append(_untrained(attempt, sorted(map(str, ends & masked))))
        if why := sorted(str(end) for end in ends & set(failures.drop_group)):
            dropped = dropped or f"{why[0]} in the group"
    if not dropped and is_constant(rewards):
        known = any(reward is not None for reward in rewards)
        dropped = "" if keep_constant and known else "constant" if known else "all lost"
    return Treated(rewards, [not (dropped or why) for why in untrained], dropped, tuple(untrained))


def _untrained(attempt: Attempt, switched: Sequence[str]) -> str:
    """Why a rollout is not trained, as far as it depends on the rollout only, or "". switched: ends of
    rollouts that the recipe masks."""
    if attempt.lost:
        return "infrastructure"
    return switched[0] if switched else "" if attempt.trained_tokens else "no token sampled"


@dataclass
class Tally:
    """Counts a step's rollouts and groups, so that everything left out appears in a number."""

    groups: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    masked: int = 0

    def add(self, group: Iterable[Attempt], treated: Treated) -> None:
        """Counts one group."""
        self.groups += 1
        if treated.dropped:
            self.dropped[treated.dropped] += 1
        for attempt, trained in zip(group, treated.trained, strict=True):
            self.ends[str(attempt.grade or attempt.end)] += 1
            self.lost += attempt.lost
            self.masked += not trained
