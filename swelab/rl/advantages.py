"""Computes advantages: how much better each rollout's reward is than the baseline of its group.

The policy is trained on the advantages. A group consists of several rollouts of one prompt. A rollout whose
reward is None is excluded: it does not count in the baseline, and its advantage is 0.

The table `choices.ADVANTAGES` names the estimators. An estimator of whole rollouts is a function f(rewards,
numbers of trained tokens), which returns one advantage per rollout.
"""

import math
from collections.abc import Sequence
from statistics import fmean, pstdev, stdev

EPSILON = 1e-6
"""Added to a standard deviation before dividing by it, so that the divisor is never 0."""

Rewards = Sequence[float | None]


def group_relative(rewards: Rewards, scaled: bool = True, epsilon: float = EPSILON) -> list[float]:
    """Returns GRPO advantages: each reward minus the group's mean.

    scaled: whether to divide by the group's unbiased standard deviation. Without this division (Dr. GRPO),
    equal differences of rewards give equal advantages, on easy and on hard prompts. All advantages are 0 if
    fewer than two rewards are known. Sources: arXiv 2402.03300, 2503.20783.
    """
    known = [reward for reward in rewards if reward is not None]
    if len(known) < 2:
        return [0.0] * len(rewards)
    scale = stdev(known) + epsilon if scaled else 1.0
    return _subtract(rewards, fmean(known), scale)


def grpo(rewards: Rewards, lengths: Sequence[int] = ()) -> list[float]:
    """Returns GRPO advantages, divided by the group's deviation. See `group_relative`."""
    return group_relative(rewards)


def grpo_unscaled(rewards: Rewards, lengths: Sequence[int] = ()) -> list[float]:
    """Returns GRPO advantages without the division (Dr. GRPO). See `group_relative`."""
    return group_relative(rewards, scaled=False)


def leave_one_out(rewards: Rewards, lengths: Sequence[int] = ()) -> list[float]:
    """Returns RLOO advantages: each reward minus the mean of the group's other rewards. Source: arXiv
    2402.14740."""
    known = [reward for reward in rewards if reward is not None]
    if len(known) < 2:
        return [0.0] * len(rewards)
    return _subtract(rewards, fmean(known), (len(known) - 1) / len(known))


def length_weighted(rewards: Rewards, lengths: Sequence[int]) -> list[float]:
    """Returns each reward minus the mean reward per token, sum(reward x length) / sum(length).

    lengths: number of trained tokens of each rollout. The sum of the advantages over all tokens of the group
    is 0. A loss that averages over tokens needs such advantages, because it weighs each rollout by its number
    of tokens. All advantages are 0 if fewer than two rewards are known, or if there are no tokens. Source:
    prime-rl, pull request 3528.
    """
    pairs = [(reward, n) for reward, n in zip(rewards, lengths, strict=True) if reward is not None]
    tokens = sum(n for _, n in pairs)
    if len(pairs) < 2 or not tokens:
        return [0.0] * len(rewards)
    return _subtract(rewards, sum(reward * n for reward, n in pairs) / tokens, 1.0)


def step_wise(
    outcomes: Rewards,
    process: Sequence[Sequence[float | None]],
    coefficient: float = 1.0,
    epsilon: float = EPSILON,
) -> list[list[float]]:
    """Returns an advantage for each step, from the rollout's outcome and a judge's score of the step.

    process: `process[i][k]` is the judge's score of step k of rollout i, or None. The value of a step is
    `outcome + coefficient x score`. A step k without a score gets the mean of the group's known scores of
    step k. The advantage of step k is its value minus the group's mean value of step k, divided by the
    population standard deviation of these values. The advantage is 0 if no other rollout reached step k, if
    all values are equal, or if the rollout's outcome is None.

    Source: OpenClaw-RL's estimator `step_wise`, which has three faults that are corrected here. The original
    reads process scores at a different index than it writes them, and ignores the coefficient. If only one
    rollout reached a step, the original uses the raw score as the advantage.
    """
    advantages = [[0.0] * len(steps) for steps in process]
    for number in range(max(map(len, process), default=0)):
        reached = [
            (i, outcome, steps[number])
            for i, (outcome, steps) in enumerate(zip(outcomes, process, strict=True))
            if outcome is not None and number < len(steps)
        ]
        if len(reached) < 2:
            continue
        judged = [score for _, _, score in reached if score is not None]
        average = fmean(judged) if judged else 0.0
        scores = [
            outcome + coefficient * (average if score is None else score) for _, outcome, score in reached
        ]
        mean, spread = fmean(scores), pstdev(scores)
        for (i, _, _), score in zip(reached, scores, strict=True):
            advantages[i][number] = (score - mean) / (spread + epsilon)
    return advantages


def is_constant(rewards: Rewards) -> bool:
    """Returns whether a group gives no training signal: fewer than two rewards are known, or all are
    equal."""
    known = [reward for reward in rewards if reward is not None]
    return len(known) < 2 or math.isclose(min(known), max(known), abs_tol=1e-12)


def _subtract(rewards: Rewards, baseline: float, scale: float) -> list[float]:
    return [0.0 if reward is None else (reward - baseline) / scale for reward in rewards]
