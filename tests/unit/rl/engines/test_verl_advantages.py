"""Data that verl's trainers get from us: weights of rows, optimizer steps, batches without a signal."""

import pytest
import torch
from omegaconf import OmegaConf

from swelab.rl.engines.verl_advantages import OurWeights, Rows, advantages, sequence_of, use_row_weights


class Trainer:
    """Replaces verl's trainer and records its calls."""

    def __init__(self, prompts=8, mini=8, samples=8):
        self.config = OmegaConf.create(
            {
                "actor_rollout_ref": {"actor": {"ppo_mini_batch_size": mini}, "rollout": {"n": samples}},
                "algorithm": {"rollout_correction": {"bypass_mode": False}},
                "data": {"train_batch_size": prompts},
            }
        )
        OmegaConf.set_struct(self.config, True)
        self.parameter_sync_step, self.asked = 1, []

    def _update_actor(self, batch, metrics):
        actor = self.config.actor_rollout_ref
        self.asked.append(actor.actor.ppo_mini_batch_size * actor.rollout.n)
        return batch

    def _compute_advantage(self, batch, metrics):
        ones = torch.ones(2, 3)
        self.asked.append(
            (self.config.algorithm.rollout_correction, advantages(ones, ones)[0][:, 0].tolist())
        )
        return batch


class Weighing(OurWeights, Trainer):
    def _rows(self, batch):
        return batch


@pytest.mark.parametrize(("rows", "mini", "each"), [(64, 8, 64), (192, 8, 192), (128, 4, 64), (96, 4, 32)])
def test_a_batch_has_the_steps_of_the_recipe(rows, mini, each):
    trainer = Weighing(mini=mini)
    trainer._update_actor([0] * rows, {})
    assert trainer.asked == [each] and trainer.config.actor_rollout_ref.actor.ppo_mini_batch_size == mini


def test_rows_weigh_as_ours_while_verl_takes_their_advantages():
    trainer = Weighing()
    trainer._compute_advantage(Rows([3, 3], ["a", "a"], "seq-mean-token-sum"), {})
    assert trainer.asked == [({"bypass_mode": False}, [2.0, 2.0])]
    assert advantages(torch.ones(2, 3), torch.ones(2, 3))[0].tolist() == [[1.0] * 3] * 2


def test_a_batch_that_teaches_nothing_is_no_step():
    trainer = Weighing()
    trainer._compute_advantage(Rows([0, 0], ["a", "b"], "token-mean"), {})
    assert trainer.asked == [(None, [0.0, 0.0])]
    assert trainer.config.algorithm.rollout_correction == {"bypass_mode": False}
    assert trainer._update_actor([0] * 64, {}) and len(trainer.asked) == 1
    trainer._compute_advantage(Rows([1, 0], ["a", "b"], "token-mean"), {})
    trainer._update_actor([0] * 64, {})
    assert trainer.asked[-1] == 64


def test_what_a_row_is_part_of():
    assert sequence_of("u_1_3_0", "rollout") == sequence_of("u_1_3_1", "rollout") == "u_1_3"
    assert sequence_of("u_1_3_0", "sequence") != sequence_of("u_1_3_1", "sequence")


def test_weights_end_with_their_block():
    with pytest.raises(RuntimeError), use_row_weights(Rows([1, 1], ["a", "a"], "seq-mean-token-sum")):
        raise RuntimeError
    assert advantages(torch.ones(2, 1), torch.ones(2, 1))[0].tolist() == [[1.0]] * 2
