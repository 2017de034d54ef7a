"""Turns rollouts into training samples: the method of a recipe, and its result for a group of rollouts.

Needs neither an engine nor a learner, so that each engine trains by the same words.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from swelab.configs.kinds.rl import Rl
from swelab.rl import metrics
from swelab.rl.advantages import OF_ROLLOUTS, STEP_WISE, step_wise
from swelab.rl.failures import Attempt, Switches, Tally, Treated, treat
from swelab.rl.rewards import reward_of
from swelab.rl.rollouts import RolledOut


@dataclass(frozen=True)
class Method:
    """How rollouts become a batch. See the recipe's keys of the same names."""

    steps: int
    prompts: int
    samples: int
    reward: str = "solved"
    evidence: str = "resolved"
    advantage: str = "grpo-unscaled"
    aggregation: str = "token-mean"
    horizon: int = 0
    per_step: bool = False
    weigh: str = "rollout"
    switches: Switches = Switches()
    keep_constant: bool = False
    refill: int = 0
    ahead: int = 0
    coefficient: float = 0.0
    keep_checkpoints: int = 2


@dataclass(frozen=True)
class Group:
    """The rollouts of one prompt, and what the switches made of them."""

    rollouts: list[RolledOut]
    attempts: list[Attempt]
    treated: Treated


def method_of(recipe: Rl) -> Method:
    """How rollouts become batches."""
    asked, method = recipe.rollouts, recipe.method
    failures = method.failures
    return Method(
        steps=recipe.train.steps,
        prompts=asked.prompts,
        samples=asked.samples,
        reward=method.reward,
        evidence=method.evidence,
        advantage=method.advantage,
        aggregation=method.aggregation,
        horizon=method.horizon,
        per_step=method.sequences == "step",
        weigh=method.weigh,
        switches=Switches(
            frozenset(failures.mask), frozenset(failures.leave_baseline), frozenset(failures.drop_group)
        ),
        keep_constant=method.keep_constant,
        refill=method.refill,
        ahead=asked.ahead,
        coefficient=recipe.judge.coefficient if recipe.judge else 0.0,
        keep_checkpoints=recipe.train.keep_checkpoints,
    )


def group_of(rollouts: Sequence[RolledOut], method: Method) -> Group:
    """The rollouts of one prompt, with what each was worth and what the switches make of them."""
    reward = reward_of(method.reward, method.evidence)
    attempts = [each.attempted(reward, method.coefficient) for each in rollouts]
    return Group(list(rollouts), attempts, treat(attempts, method.switches, method.keep_constant))


def advantages_of(group: Group, method: Method) -> list[list[float]]:
    """The advantage of each turn of each rollout of a group."""
    if method.advantage == STEP_WISE:
        reward = reward_of(method.reward, method.evidence)
        scores = [rollout.scores for rollout in group.rollouts]
        outcomes = [
            None if known is None else reward(rollout.grade)
            for rollout, known in zip(group.rollouts, group.treated.rewards, strict=True)
        ]
        return step_wise(outcomes, scores, method.coefficient)
    lengths = [attempt.trained_tokens for attempt in group.attempts]
    found = OF_ROLLOUTS[method.advantage](group.treated.rewards, lengths)
    return [[each] * len(rollout.turns) for each, rollout in zip(found, group.rollouts, strict=True)]


def measured(groups: Sequence[Group], version: str) -> dict[str, float]:
    """Returns the measures of a step before it is trained. version: of the weights at the start of the
    step."""
    tally = Tally()
    for group in groups:
        tally.add(group.attempts, group.treated)
    rollouts = [each for group in groups for each in group.rollouts]
    attempts = [each for group in groups for each in group.attempts]
    return {
        **metrics.of_rewards(attempts, tally),
        **metrics.of_groups(group.attempts for group in groups),
        **metrics.of_turns(rollouts, version),
        **metrics.of_agents(map(metrics.of_rollout, rollouts)),
    }
