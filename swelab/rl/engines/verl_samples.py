"""Converts our rollouts to verl's training rows. Each sequence becomes one row, which contains our advantage
of each token."""

from collections.abc import Sequence
from typing import Any

import torch
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

from swelab.configs.kinds.rl import Rl
from swelab.models.token_turn import TokenTurn
from swelab.outcomes import LOST_ROLLOUTS
from swelab.rl.method import advantages_of, group_of
from swelab.rl.rewards import reward_of
from swelab.rl.rollouts import RolledOut
from swelab.rl.samples import Sample, samples


class Row(AgentLoopOutput):
    """One sequence for verl. advantages: one for each token of the response, or None if the row is not
    trained.

    verl expects one reward per row, and copies the reward of a rollout's last row to the rollout's other
    rows. So we pass our advantages to verl as token scores instead. The estimator `swelab` uses these scores
    as advantages.
    """

    advantages: list[float] | None = None

    def as_dict(self) -> dict[str, Any]:
        """See `AgentLoopOutput.as_dict`."""
        found: dict[str, Any] = super().as_dict()
        found.pop("advantages", None)
        if self.advantages is not None:
            found["rm_scores"] = torch.tensor(self.advantages, dtype=torch.float32)
        return found


def trained_rows(group: dict[int, RolledOut], recipe: Rl, version: int) -> dict[int, list[Row]]:
    """Returns the rows of each rollout, keyed by the rollout's number in the group. A rollout that is not
    trained has no rows.

    If no rollout of the group is trained, the first rollout gets one row with one untrained token, because
    verl ends the run at a step without rows. version: version of the weights, which is written into that row.
    """
    order = sorted(group)
    found = group_of([group[number] for number in order], recipe)
    advantages = advantages_of(found, recipe)
    rows: dict[int, list[Row]] = {number: [] for number in order}
    for number, rollout, attempt, row_advantages, trained in zip(
        order, found.rollouts, found.attempts, advantages, found.treated.trained, strict=True
    ):
        if trained:
            made = samples(rollout.turns, recipe.method.per_step)
            reward = attempt.reward or 0.0
            rows[number] = [_row(sample, rollout, reward, row_advantages) for sample in made]
    if order and not any(rows.values()):
        rows[order[0]] = [empty_row(version)]
    return rows


def validation_row(done: RolledOut, recipe: Rl) -> list[Row]:
    """Returns the row of a validation attempt, or no row if the attempt was lost to infrastructure."""
    attempt = done.attempt(reward_of(recipe.method.reward, recipe.method.evidence))
    made = samples(done.turns)
    if attempt.lost or done.trajectory["outcome"] in LOST_ROLLOUTS or not made:
        return []
    return [_row(made[-1], done, attempt.reward or 0.0, None)]


def empty_row(version: int) -> Row:
    """Returns a row with a single, untrained token."""
    return Row(
        prompt_ids=[0],
        response_ids=[0],
        response_mask=[0],
        response_logprobs=[0.0],
        reward_score=0.0,
        num_turns=0,
        metrics=AgentLoopMetrics(),
        extra_fields=_metrics(0.0, version, version),
        advantages=[0.0],
    )


def versions_of(turns: Sequence[TokenTurn]) -> list[int]:
    """Returns the versions of the weights that sampled these turns."""
    return [int(version) for turn in turns for _, version in turn.versions]


def _row(sample: Sample, done: RolledOut, reward: float, advantages: Sequence[float] | None) -> Row:
    first = sample.mask.index(1)
    steps = sample.steps[first:]
    versions = versions_of(done.turns)
    scores = None if advantages is None else [advantages[step] if step >= 0 else 0.0 for step in steps]
    resolved = float(bool(done.grade.get("resolved")))
    return Row(
        prompt_ids=sample.ids[:first] or [0],
        response_ids=sample.ids[first:],
        response_mask=sample.mask[first:],
        response_logprobs=sample.logprobs[first:],
        reward_score=reward,
        num_turns=2 * len(done.turns),
        metrics=AgentLoopMetrics(generate_sequences=done.seconds["run"], compute_score=done.seconds["grade"]),
        extra_fields=_metrics(resolved, min(versions), max(versions)),
        advantages=scores,
    )


def _metrics(resolved: float, oldest: int, newest: int) -> dict[str, Any]:
    """Returns the extra fields that verl needs for each row. All rows must have the same fields."""
    return {
        "reward_extra_info": {"resolved": resolved},
        "min_global_steps": oldest,
        "max_global_steps": newest,
    }
