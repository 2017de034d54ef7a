"""Makes verl use our advantages and our sequence weights.

Our agent loop computes the advantages of a whole group by the recipe's settings. The agent loop passes the
advantage of each token to verl, in verl's field for rewards. The estimator that we register with verl returns
these values as advantages. So a masked rollout counts in a baseline only if the recipe allows it. The reward
of a rollout's last sequence is not copied to its other sequences.

Some methods of verl's trainers are replaced. The new methods set each sequence's weight and the number of
optimizer steps of a batch. The new methods also save a checkpoint before the job ends (`verl_deadline`).

Corrects the row weights of a verl batch, so that each sequence has the same weight as in our trainer.

When verl averages over a batch, its divisors differ from ours. verl's means over sequences count every row,
even padding rows. If a rollout was split into several rows, verl counts it once for each row. verl's losses
are proportional to the advantages. So a factor on the advantages of a row corrects the row's weight.
"""

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from swelab.rl.engines.verl_deadline import SavesInTime
from swelab.rl.token_weights import token_weights


def row_factors(
    trained: Sequence[int],
    accepted: Sequence[int],
    sequences: Sequence[Hashable],
    mode: str,
    horizon: int = 0,
) -> list[float]:
    """Returns the factor for each row's advantages, or 0.0 for rows without trained tokens.

    trained: number of trained tokens of each row. accepted: number of these tokens that verl keeps. verl
    rejects tokens whose probability differs too much between trainer and engine. sequences, mode, horizon:
    see `token_weights`. Raises ValueError as `token_weights` does.
    """
    ours = token_weights(trained, sequences, mode, horizon)
    rows, tokens = len(trained), sum(trained)
    theirs: dict[str, Callable[[int], int]] = {
        "token-mean": lambda row: tokens,
        "seq-mean-token-sum": lambda row: rows,
        "seq-mean-token-sum-norm": lambda row: rows * horizon,
        "seq-mean-token-mean": lambda row: rows * accepted[row],
    }
    divisor = theirs[mode]
    return [weight * divisor(row) if weight else 0.0 for row, weight in enumerate(ours)]


def optimizer_steps(rows: int, each: int, steps: int) -> int:
    """Returns the number of optimizer steps of a batch: `steps` if it divides rows / each, otherwise rows /
    each.

    rows: number of rows in the batch, a multiple of `each`. each: number of rows that verl uses for one step.
    """
    parts = rows // each
    return parts if parts % steps else steps


NAME = "swelab"
"""The estimator's name in verl (algorithm.adv_estimator)."""
MODES = ("sync", "separate_async")
"""verl's training modes (trainer.v1.trainer_mode) whose trainer classes `register` replaces."""


@dataclass(frozen=True)
class Rows:
    """Facts about the rows of a verl batch. trained: number of trained tokens of each row. sequences: name of
    the sequence that each row belongs to. mode, horizon: see `token_weights`."""

    trained: list[int]
    sequences: list[str]
    mode: str
    horizon: int = 0


_BATCH: ContextVar[Rows | None] = ContextVar("_BATCH", default=None)


@contextmanager
def use_row_weights(batch: Rows) -> Iterator[None]:
    """While the block runs, `advantages` corrects the weights of the rows of `batch` (see `row_weights`)."""
    before = _BATCH.set(batch)
    try:
        yield
    finally:
        _BATCH.reset(before)


def advantages(token_level_rewards: Tensor, response_mask: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
    """Returns (advantages, returns), each [rows, tokens]. token_level_rewards: our advantages, in verl's
    field for rewards."""
    found = token_level_rewards * response_mask
    if batch := _BATCH.get():
        kept = [int(count) for count in response_mask.sum(-1)]
        factors = row_factors(batch.trained, kept, batch.sequences, batch.mode, batch.horizon)
        found = found * torch.tensor(factors, dtype=found.dtype, device=found.device)[:, None]
    return found, found


def sequence_of(key: str, weigh: str) -> str:
    """Returns the name of the sequence that a row belongs to. With `weigh: rollout` this is the rollout's
    name, otherwise the row's own key. key: the row's key, in the form `uid_session_number`."""
    return key.rpartition("_")[0] if weigh == "rollout" else key


class OurWeights:
    """Mixin for verl's trainer classes: weighs a batch and divides it into optimizer steps as our trainer
    does. In the list of bases, this mixin must come before verl's class."""

    config: Any
    parameter_sync_step: int
    teaches: bool = True
    """Whether the batch has a trained token."""

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Overrides verl's PPOTrainer. Disables verl's setting `algorithm.rollout_correction` for a batch
        without trained tokens, because the correction would fail."""
        trainer, rows, algorithm = cast(Any, super()), self._rows(batch), self.config.algorithm
        before, self.teaches = algorithm.get("rollout_correction"), any(rows.trained)
        try:
            if not self.teaches:
                algorithm.rollout_correction = None
            with use_row_weights(rows):
                return trainer._compute_advantage(batch, metrics)
        finally:
            algorithm.rollout_correction = before

    def _rows(self, batch: Any) -> Rows:
        import transfer_queue

        read = {"keys": batch.keys, "partition_id": batch.partition_id, "select_fields": ["loss_mask"]}
        masks = transfer_queue.kv_batch_get(**read)["loss_mask"]
        actor, weigh = self.config.actor_rollout_ref.actor, self.config.algorithm.get("weigh", "rollout")
        return Rows(
            [int(mask.sum()) for mask in masks.unbind()],
            [sequence_of(key, weigh) for key in batch.keys],
            actor.loss_agg_mode,
            actor.loss_scale_factor or 0,
        )

    def _update_actor(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """Overrides verl's PPOTrainer. Makes as many optimizer steps as the recipe says, whatever the number
        of rows.

        Makes no step if no token is trained, because verl's loss divides by the number of trained tokens.
        """
        if not self.teaches:
            return batch
        actor, samples = self.config.actor_rollout_ref.actor, self.config.actor_rollout_ref.rollout.n
        before = actor.ppo_mini_batch_size
        prompts = self.config.data.train_batch_size // self.parameter_sync_step
        steps = optimizer_steps(len(batch), before * samples, prompts // before)
        trainer = cast(Any, super())
        actor.ppo_mini_batch_size = len(batch) // steps // samples
        try:
            return trainer._update_actor(batch, metrics)
        finally:
            actor.ppo_mini_batch_size = before


def register() -> None:
    """Registers our estimator and our trainer classes with verl. Further calls have no effect."""
    from verl.trainer.ppo.core_algos import register_adv_est
    from verl.trainer.ppo.v1 import trainer_base

    register_adv_est(NAME)(advantages)
    known = trainer_base.TRAINER_REGISTRY
    for mode in MODES:  # verl also selects buffers and settings by mode
        if not issubclass(known[mode], OurWeights):
            bases = (OurWeights, SavesInTime, known[mode])
            known[mode] = type(f"Swelab{known[mode].__name__}", bases, {})
