"""Our advantages in verl, and our weights of sequences.

The agent loop knows a whole group: it applies the recipe's switches and estimator there, and puts the
advantage of each token where verl keeps rewards. verl's own estimate from these has no effect: a masked
rollout is in no baseline that the recipe keeps it out of, and the last sequence of a rollout overwrites no
other. The trainers are verl's with a few methods replaced. These set the weight of a sequence and the number
of optimizer steps of a batch, and save before the job ends (`verl_deadline`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from swelab.rl.engines.row_weights import corrections, optimizer_steps
from swelab.rl.engines.verl_deadline import SavesInTime

NAME = "swelab"
"""The estimator's name in verl (algorithm.adv_estimator)."""
MODES = ("sync", "separate_async")
"""verl's trainers (trainer.v1.trainer_mode) that weigh as we do."""


@dataclass(frozen=True)
class Rows:
    """A batch of verl: trained tokens of each row, what the row is part of, how rows are put together."""

    trained: list[int]
    sequences: list[str]
    mode: str
    horizon: int = 0


_BATCH: ContextVar[Rows | None] = ContextVar("_BATCH", default=None)


@contextmanager
def weighing(batch: Rows) -> Iterator[None]:
    """While the block lasts `advantages` brings the weights of these rows to ours."""
    before = _BATCH.set(batch)
    try:
        yield
    finally:
        _BATCH.reset(before)


def advantages(token_level_rewards: Tensor, response_mask: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
    """Advantages and returns [rows, tokens] of a batch whose rewards are our advantages of its tokens."""
    found = token_level_rewards * response_mask
    if batch := _BATCH.get():
        kept = [int(count) for count in response_mask.sum(-1)]
        factors = corrections(batch.trained, kept, batch.sequences, batch.mode, batch.horizon)
        found = found * torch.tensor(factors, dtype=found.dtype, device=found.device)[:, None]
    return found, found


def sequence_of(key: str, weigh: str) -> str:
    """Returns the sequence that the row `uid_session_number` belongs to: its rollout, or the row itself with
    `weigh: sequence`."""
    return key.rpartition("_")[0] if weigh == "rollout" else key


class OurWeights:
    """Mixin before a trainer class of verl: it weighs batches, and steps through them, as our own trainer
    does."""

    config: Any
    parameter_sync_step: int
    teaches: bool = True
    """Whether a token of the batch is trained."""

    def _compute_advantage(self, batch: Any, metrics: dict[str, Any]) -> Any:
        """See verl's PPOTrainer, whose correction of ratios would fail without a trained token: skipped."""
        trainer, rows, algorithm = cast(Any, super()), self._rows(batch), self.config.algorithm
        before, self.teaches = algorithm.get("rollout_correction"), any(rows.trained)
        try:
            if not self.teaches:
                algorithm.rollout_correction = None
            with weighing(rows):
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
        """See verl's PPOTrainer. A batch has the recipe's optimizer steps, however many rows it has.

        None where no token is trained: verl's loss divides by their number.
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
    """Makes verl know the estimator, and has its trainers weigh as we do. Idempotent."""
    from verl.trainer.ppo.core_algos import register_adv_est
    from verl.trainer.ppo.v1 import trainer_base

    register_adv_est(NAME)(advantages)
    known = trainer_base.TRAINER_REGISTRY
    for mode in MODES:  # under their own names, by which verl chooses buffers and settings too
        if not issubclass(known[mode], OurWeights):
            bases = (OurWeights, SavesInTime, known[mode])
            known[mode] = type(f"Swelab{known[mode].__name__}", bases, {})
