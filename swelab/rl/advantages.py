"""Advantages: by how much each rollout of a group did better than the group. The policy is trained on them.

A group is several rollouts of one prompt. A reward of None leaves the group: it enters no baseline and its
advantage is 0.
"""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, pstdev, stdev

EPSILON = 1e-6
"""Added to a standard deviation before dividing by it, so that the divisor is never 0."""

Rewards = Sequence[float | None]


def group_relative(rewards: Rewards, scaled: bool = True, epsilon: float = EPSILON) -> list[float]:
    """GRPO: each reward less the group's mean, divided by its unbiased standard deviation if `scaled`.

    Without the division, easy and hard prompts weigh the same for the same difference of rewards (Dr. GRPO).
    A group of fewer than two rewards has nothing to compare: all 0. Sources: arXiv 2402.03300, 2503.20783.
    """
    known = [reward for reward in rewards if reward is not None]
    if len(known) < 2:
        return [0.0] * len(rewards)
    scale = stdev(known) + epsilon if scaled else 1.0
    return _less(rewards, fmean(known), scale)


def leave_one_out(rewards: Rewards) -> list[float]:
    """RLOO: each reward minus the mean of the other rewards. Source: arXiv 2402.14740."""
    known = [reward for reward in rewards if reward is not None]
    if len(known) < 2:
        return [0.0] * len(rewards)
    return _less(rewards, fmean(known), (len(known) - 1) / len(known))


def length_weighted(rewards: Rewards, lengths: Sequence[int]) -> list[float]:
    """Each reward less the mean reward of a token: sum(reward x length) / sum(length).

    So the advantages of a group's tokens sum to 0. A loss that is a mean over tokens needs this, because a
    rollout's weight in it is its number of tokens. `lengths` are trained tokens, one number per rollout. A
    group of fewer than two rewards, or one without tokens, is all 0. Source: prime-rl, pull request 3528.
    """
    pairs = [(reward, n) for reward, n in zip(rewards, lengths, strict=True) if reward is not None]
    tokens = sum(n for _, n in pairs)
    if len(pairs) < 2 or not tokens:
        return [0.0] * len(rewards)
    return _less(rewards, sum(reward * n for reward, n in pairs) / tokens, 1.0)


def step_wise(
    outcomes: Rewards,
    process: Sequence[Sequence[float | None]],
    coefficient: float = 1.0,
    epsilon: float = EPSILON,
) -> list[list[float]]:
    """An advantage for each step, from the outcome of its rollout and a judge's score of the step.

    `process[i][k]` is the judge's score of step k of rollout i, None if it has none: such a step counts as
    average among the judged steps of the same number. A step's score is `outcome + coefficient x process`.
    Steps of the same number are compared across the group: score less mean, divided by the population
    standard deviation. A step that no other rollout of the group reached, or at which all scores are equal,
    has advantage 0. Rollouts whose outcome is None have 0 at each step.

    Source: the estimator `step_wise` of OpenClaw-RL, without three of its faults: it reads process scores by
    another index than it writes them, it ignores the coefficient, and it uses the raw score of a step that
    only one rollout reached.
    """
    found = [[0.0] * len(steps) for steps in process]
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
            found[i][number] = (score - mean) / (spread + epsilon)
    return found


def is_constant(rewards: Rewards) -> bool:
    """Whether a group gives no signal: it has fewer than two known rewards, or all are equal."""
    known = [reward for reward in rewards if reward is not None]
    return len(known) < 2 or math.isclose(min(known), max(known), abs_tol=1e-12)


def _less(rewards: Rewards, baseline: float, scale: float) -> list[float]:
    return [0.0 if reward is None else (reward - baseline) / scale for reward in rewards]


STEP_WISE = "step-wise"
"""The name in recipes of the estimator that gives each step an advantage of its own."""
OF_ROLLOUTS: dict[str, Callable[[Rewards, Sequence[int]], list[float]]] = {
    "grpo": lambda rewards, lengths: group_relative(rewards),
    "grpo-unscaled": lambda rewards, lengths: group_relative(rewards, scaled=False),
    "leave-one-out": lambda rewards, lengths: leave_one_out(rewards),
    "length-weighted": length_weighted,
}
"""Estimators that give each rollout a single advantage: name in recipes -> f(rewards, trained tokens)."""
