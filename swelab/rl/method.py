"""Computes rewards and advantages of a group's rollouts by a recipe's method.

This module uses neither an engine nor a learner, so that all engines train by the same method.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from swelab.choices import ADVANTAGES
from swelab.configs.kinds.rl import Rl
from swelab.rl import metrics
from swelab.rl.failures import Attempt, SwitchedGroup, Tally, treat
from swelab.rl.rewards import reward_of
from swelab.rl.rollouts import RolledOut


@dataclass(frozen=True)
class Group:
    """The rollouts of one prompt, and the result of the recipe's switches for failed rollouts."""

    rollouts: list[RolledOut]
    attempts: list[Attempt]
    treated: SwitchedGroup


def group_of(rollouts: Sequence[RolledOut], recipe: Rl) -> Group:
    """Returns the rollouts of one prompt as a group. Computes their rewards, and applies the recipe's
    switches for failed rollouts."""
    method = recipe.method
    reward = reward_of(method.reward, method.evidence)
    attempts = [each.attempt(reward, recipe.coefficient) for each in rollouts]
    return Group(list(rollouts), attempts, treat(attempts, method.failures, method.keep_constant))


def advantages_of(group: Group, recipe: Rl) -> list[list[float]]:
    """Returns the advantage of each turn of each rollout in a group."""
    method = recipe.method
    estimator = ADVANTAGES[method.advantage]
    if estimator.per_step:
        reward = reward_of(method.reward, method.evidence)
        scores = [rollout.scores for rollout in group.rollouts]
        outcomes = [
            None if known is None else reward(rollout.grade)
            for rollout, known in zip(group.rollouts, group.treated.rewards, strict=True)
        ]
        by_step: list[list[float]] = estimator.load()(outcomes, scores, recipe.coefficient)
        return by_step
    lengths = [attempt.trained_tokens for attempt in group.attempts]
    found = estimator.load()(group.treated.rewards, lengths)
    return [[each] * len(rollout.turns) for each, rollout in zip(found, group.rollouts, strict=True)]


def group_figures(groups: Sequence[Group], version: str) -> dict[str, float]:
    """Returns the figures of a step that are known before its training. version: version of the weights when
    the step starts."""
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
