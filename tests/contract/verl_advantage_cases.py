"""Advantages by our method and by verl's own functions, from the same rewards: cases for `verl_parity`.

Imported in verl's environment.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from torch import Tensor
from verl import DataProto
from verl.trainer.ppo.core_algos import get_adv_estimator_fn
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories

from swelab.choices import ADVANTAGES
from swelab.configs.kinds.rl import Failures
from swelab.outcomes import GradeEnd, RolloutEnd
from swelab.rl.advantages import grpo_unscaled
from swelab.rl.failures import Attempt, treat

VERL = {"grpo": "grpo", "grpo-unscaled": "grpo", "leave-one-out": "rloo", "length-weighted": "opo"}
"""Maps our estimators to verl's."""


@dataclass(frozen=True)
class Case:
    """A case.

    differs: the reason for a difference and the value that we use; empty if both define the same.
    """

    part: str
    name: str
    ours: list[float]
    verl: list[float]
    differs: str = ""

    @property
    def apart(self) -> float:
        """The largest difference."""
        return max(abs(one - other) for one, other in zip(self.ours, self.verl, strict=True))


def proto(rewards: list[float], mask: Tensor, uids: list[str]) -> DataProto:
    """Returns rows in verl's form, each with its reward at its last position."""
    level = torch.zeros(mask.shape, dtype=torch.float64)
    level[:, -1] = torch.tensor(rewards, dtype=torch.float64)
    batch = TensorDict({"token_level_rewards": level, "response_mask": mask}, batch_size=len(rewards))
    return DataProto(batch=batch, non_tensor_batch={"uid": np.array(uids, dtype=object)})


def verl_advantages_of(name: str, rewards: list[float], lengths: list[int], uids: list[str]) -> list[float]:
    """Returns verl's advantage of each row's first token."""
    mask = torch.zeros(len(rewards), max(lengths) + 1)
    for row, length in enumerate(lengths):
        mask[row, :length] = 1
    data = proto(rewards, mask, uids)
    options = {"norm_adv_by_std_in_grpo": name == "grpo"} if VERL[name] == "grpo" else {}
    found, _ = get_adv_estimator_fn(VERL[name])(
        token_level_rewards=data.batch["token_level_rewards"], response_mask=mask,
        index=data.non_tensor_batch["uid"], config=OmegaConf.create({}), **options,
    )  # fmt: skip
    return found[:, 0].tolist()


def of_groups() -> Iterator[Case]:
    """Yields estimators on groups of eight, of one, and on several groups at once."""
    lengths = [3, 8, 1, 5, 4, 4, 2, 7]
    for name in VERL:
        estimate = ADVANTAGES[name].load()
        ours, verl = list[float](), list[float]()
        for solved in range(9):
            rewards = [1.0] * solved + [0.0] * (8 - solved)
            ours += estimate(rewards, lengths)
            verl += verl_advantages_of(name, rewards, lengths, ["a"] * 8)
        yield Case("advantage", f"{name}: 0 to 8 solved of 8, constant groups too", ours, verl)
        rewards = [0.3, 1.0, 0.0, -1.0, 0.5, 0.5, 1.0, 0.25]
        uids = ["a", "b", "a", "b", "a", "b", "b", "b"]
        split = [[row for row in range(8) if uids[row] == uid] for uid in "ab"]
        found = dict[int, float]()
        for rows in split:
            found |= zip(rows, estimate([rewards[r] for r in rows], [lengths[r] for r in rows]), strict=True)
        verl = verl_advantages_of(name, rewards, lengths, uids)
        yield Case("advantage", f"{name}: two groups, any rewards", [found[row] for row in range(8)], verl)
        why = "nothing to compare it with: ours is 0, verl's is the reward itself. Ours is taken."
        yield Case(
            "advantage", f"{name}: a group of one", estimate([1.0], [3]),
            verl_advantages_of(name, [1.0], [3], ["a"]), why,
        )  # fmt: skip


def grpo(rewards: list[float], keys: list[str], mask: list[int]) -> list[float]:
    """Returns verl's own advantages of samples. `mask` 0 masks a whole row."""
    masks = torch.tensor(mask, dtype=torch.float64)[:, None].expand(len(mask), 3).clone()
    data = proto(rewards, masks, [key.split("_")[0] for key in keys])
    found = compute_advantage_for_multi_trajectories(
        data, keys, "grpo", norm_adv_by_std_in_grpo=False, config=OmegaConf.create({})
    )
    return found.batch["advantages"][:, 0].tolist()


def of_failures() -> Iterator[Case]:
    """Yields masked rollouts, and rollouts of several samples, by verl's own rule."""
    rewards = [1.0, 0.0, 0.0]
    ends = [RolloutEnd.SUBMITTED, RolloutEnd.SUBMITTED, RolloutEnd.STEP_LIMIT]
    grades = [GradeEnd.RESOLVED, GradeEnd.UNRESOLVED, GradeEnd.UNRESOLVED]
    group = [Attempt(end, grade, reward, 3) for end, grade, reward in zip(ends, grades, rewards, strict=True)]
    keys, masked = ["a_0_0", "a_1_0", "a_2_0"], [1, 1, 0]
    limit = ["step_limit"]

    def ours(switches: Failures) -> list[float]:
        treated = treat(group, switches)
        found = grpo_unscaled(treated.rewards, [3] * 3)
        return [each * trained for each, trained in zip(found, treated.trained, strict=True)]

    yield Case(
        "failure", "masked, and in the baseline", ours(Failures(mask=limit)), grpo(rewards, keys, masked)
    )
    why = "verl has no switch: what is masked stays in the baseline. Ours is taken."
    away = ours(Failures(mask=limit, leave_baseline=limit))
    yield Case("failure", "masked, and out of the baseline", away, grpo(rewards, keys, masked), why)
    yield Case("failure", "no row at all (lost)", away[:2], grpo(rewards[:2], keys[:2], [1, 1]))
    why = "verl has no switch: what is masked here stays in its mean. Ours is taken."
    alone = ours(Failures(leave_baseline=limit))
    yield Case("failure", "out of the baseline alone", alone, grpo(rewards, keys, masked), why)
    why = "verl has no switch, and trains the rest of the group. Ours is taken."
    yield Case(
        "failure", "its group dropped", ours(Failures(drop_group=limit)), grpo(rewards, keys, masked), why
    )
    why = "one is left: verl's baseline of it is 0, ours drops the group. Ours is taken."
    lone = treat([group[0], Attempt(RolloutEnd.SANDBOX_LOST, None, None, 3)], Failures())
    left = grpo_unscaled(lone.rewards, [3] * 2)[0] * lone.trained[0]
    yield Case("failure", "all others lost", [left], grpo(rewards[:1], keys[:1], [1]), why)
    why = "the last sample of a rollout stands for it, and here it is masked. Ours is taken."
    lists = ["a_0_0", "a_0_1", "a_1_0"]
    yield Case(
        "failure", "two samples, the last masked", [0.5, 0, -0.5], grpo([1, 1, 0], lists, [1, 0, 1]), why
    )
    why = "the last sample's reward overwrites the first one's. Ours is taken."
    yield Case(
        "failure",
        "two samples, the reward on the first",
        [0.5, 0.5, -0.5],
        grpo([1, 0, 0], lists, [1] * 3),
        why,
    )
