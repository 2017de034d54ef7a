"""Losses of our batches, by our method and by verl's own functions: cases for `verl_parity`.

Imported in verl's environment. Both sides are given the same groups, with masked and lost rollouts and with
rollouts of two sequences, and are compared by the loss and its gradient. Numbers are in double precision.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from torch import Tensor
from verl import DataProto
from verl.trainer.ppo.core_algos import agg_loss, get_policy_loss_fn, kl_penalty
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_rejection_mask
from verl.trainer.ppo.v1.utils import compute_advantage_for_multi_trajectories
from verl.workers.config import ActorConfig

from swelab.configs.kinds.rl import Method, Mismatch, Rl
from swelab.models.token_turn import TokenTurn
from swelab.records.task_records import Task
from swelab.rl.engines import verl_advantages
from swelab.rl.engines.verl_advantages import Rows, sequence_of, use_row_weights
from swelab.rl.engines.verl_samples import trained_rows
from swelab.rl.loop import batch_of
from swelab.rl.losses import LOSSES, kl_to_reference, mismatch_weights
from swelab.rl.method import Group, group_of
from swelab.rl.rollouts import RolledOut, RolloutRequest
from tests.contract.verl_advantage_cases import Case
from tests.rl_recipe import rl_recipe

NONE = 1e9
"""A bound that no value reaches."""
HORIZON = 7


def recipe(judged: bool = False, **method: object) -> Rl:
    """Returns a recipe that masks attempts at the step limit. method: changes of that section."""
    masked = {"horizon": HORIZON, "failures": {"mask": ["step_limit"]}}
    judge = {"judge": {"policy": "rater"}} if judged else {}
    return rl_recipe(rollouts={"prompts": 2, "samples": 6}, method=masked | method, **judge)


RECIPE, CLIP = recipe(), Method()
EXACT = Mismatch()
TASK = Task.of({"instance_id": "x"})


def rollout(prompt: int, sample: int, end: str, resolved: bool, turns: int, votes: bool = False) -> RolledOut:
    """Returns a rollout whose history is cut at its third turn, so it consists of two sequences."""
    made, prompts = [], [1, 2]
    for turn in range(turns):
        prompts = [7, turn] if turn == 2 else prompts
        sampled = list(range(10, 12 + (turn + sample) % 3))
        made.append(TokenTurn(tuple(prompts), tuple(sampled), (-1.0,) * len(sampled), "stop", ((0, "0"),)))
        prompts = [*prompts, *sampled, 3]
    grade = {"status": "resolved" if resolved else "unresolved", "resolved": resolved}
    said = tuple(((1 if (turn + sample) % 2 else -1), 1) for turn in range(turns)) if votes else ()
    asked, seconds = RolloutRequest(prompt, sample, TASK), {"run": 1, "grade": 1}
    return RolledOut(asked, {"outcome": end, "messages": []}, grade, tuple(made), seconds, said)


def groups(recipe: Rl, votes: bool) -> list[Group]:
    """Returns three groups: the first has masked and lost rollouts, the last has equal rewards."""
    ends = {2: "step_limit", 3: "model_lost", 4: "context_limit"}
    solved = ({0, 1}, {3}, set[int]())
    return [
        group_of(
            [
                rollout(prompt, n, "submitted" if prompt else ends.get(n, "submitted"), n in solved[prompt],
                        1 + (n + prompt) % 4, votes)
                for n in range(size)
            ],
            recipe,
        )
        for prompt, size in enumerate((6, 4, 2))
    ]  # fmt: skip


@dataclass
class Batch:
    """The input of both sides, [rows, tokens of the response]: verl's rows, our weights of their tokens."""

    keys: list[str]
    mask: Tensor
    level: Tensor
    weights: Tensor


def batch(recipe: Rl, votes: bool = False) -> Batch:
    """Returns the rows that our agent loop gives to verl, and two rows that fill the batch."""
    made = groups(recipe, votes)
    rows = {
        f"p{prompt}_{session}_{number}": row.as_dict()
        for prompt, group in enumerate(made)
        for session, found in trained_rows(dict(enumerate(group.rollouts)), recipe, 0).items()
        for number, row in enumerate(found)
    }
    ours = iter(batch_of(made, recipe))
    width = max(len(row["response_mask"]) for row in rows.values())
    mask, level, weights = (torch.zeros(len(rows) + 2, width, dtype=torch.float64) for _ in range(3))
    for number, row in enumerate(rows.values()):
        size = len(row["response_mask"])
        mask[number, :size], level[number, :size] = row["response_mask"], row["rm_scores"]
        if row["response_mask"].any():
            weights[number, :size] = torch.tensor(next(ours).weights[-size:])
    assert next(ours, None) is None, "a sequence of ours is no row"
    return Batch([*rows, "pad_0_0", "pad_1_0"], mask, level, weights)


def through_verl(given: Batch, method: Method, horizon: int, mask: Tensor | None = None) -> Tensor:
    """Returns our advantages after verl's own path to a registered estimator. [rows, tokens]"""
    tensors = {"token_level_rewards": given.level, "response_mask": given.mask if mask is None else mask}
    uids = np.array([key.rsplit("_", 2)[0] for key in given.keys], dtype=object)
    data = DataProto(batch=TensorDict(tensors, batch_size=len(given.keys)), non_tensor_batch={"uid": uids})
    rows = Rows(
        [int(count) for count in given.mask.sum(-1)], [sequence_of(key, method.weigh) for key in given.keys],
        method.aggregation, horizon,
    )  # fmt: skip
    with use_row_weights(rows):
        found = compute_advantage_for_multi_trajectories(
            data, given.keys, verl_advantages.NAME, config=OmegaConf.create({})
        )
    return found.batch["advantages"]


def actor(mode: str, clip: Method, rows: int, tokens: float, horizon: int = 0) -> ActorConfig:
    """Returns verl's loss settings with the divisors of the batch."""
    whole = {"dp_size": 1, "batch_num_tokens": tokens, "global_batch_size": rows}
    bounds = {"clip_ratio": clip.clip_low, "clip_ratio_low": clip.clip_low, "clip_ratio_high": clip.clip_high}
    return ActorConfig(
        strategy="fsdp2", rollout_n=8, ppo_micro_batch_size_per_gpu=1, loss_agg_mode=mode, **bounds,
        clip_ratio_c=clip.dual_clip or NONE,
        global_batch_info={**whole, "loss_scale_factor": horizon or None},
    )  # fmt: skip


@dataclass
class Numbers:
    """Log-probabilities [rows, tokens] of a batch: now, before the update, of the engine, of the start."""

    now: Tensor
    old: Tensor
    engine: Tensor
    start: Tensor

    @classmethod
    def of(cls, shape: torch.Size, spread: float = 0.4) -> "Numbers":
        random = torch.Generator().manual_seed(5)
        now, old, engine, start = (
            torch.randn(shape, generator=random, dtype=torch.float64) * spread - 1 for _ in range(4)
        )
        return cls(now.requires_grad_(), old, engine, start)


def gradient(loss: Tensor, of: Tensor) -> list[float]:
    """Returns a loss and its gradient as one list."""
    (found,) = torch.autograd.grad(loss, of)
    return [loss.item(), *found.flatten().tolist()]


def verl_loss(
    name: str, numbers: Numbers, advantages: Tensor, mask: Tensor, config: ActorConfig,
    trust: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Returns verl's loss of a batch."""
    loss, _ = get_policy_loss_fn({"clipped": "vanilla"}.get(name, name))(
        old_log_prob=numbers.old, log_prob=numbers.now, advantages=advantages, response_mask=mask,
        loss_agg_mode=config.loss_agg_mode, config=config, rollout_is_weights=trust,
    )  # fmt: skip
    return loss


def our_loss(
    name: str, numbers: Numbers, given: Batch, clip: Method, rule: Mismatch = EXACT, kl: float = 0.0
) -> Tensor:
    """Returns the embedded learner's loss of a batch."""
    mask = given.mask.bool()
    losses, _ = LOSSES[name](numbers.now, numbers.old, given.level, mask, clip)
    losses = losses * mismatch_weights(numbers.old, numbers.engine, mask, rule)
    losses = losses + kl * kl_to_reference(numbers.now, numbers.start, mask)
    return (losses * given.weights).sum()


def compared(
    part: str, name: str, loss: str = "clipped", clip: Method = CLIP, used: Rl = RECIPE,
    theirs: Method | None = None, ours: bool = True, votes: bool = False, differs: str = "",
) -> Case:  # fmt: skip
    """Compares both sides on a batch. theirs: verl's bounds. ours: whether verl's rows have our weights."""
    given, method = batch(used, votes), used.method
    numbers, tokens = Numbers.of(given.mask.shape), given.mask.sum().item()
    config = actor(method.aggregation, theirs or clip, len(given.keys), tokens, HORIZON)
    told = through_verl(given, method, HORIZON) if ours else given.level
    one = gradient(our_loss(loss, numbers, given, clip), numbers.now)
    other = gradient(verl_loss(loss, numbers, told, given.mask, config), numbers.now)
    return Case(part, name, one, other, differs)


def of_bounds() -> Iterator[Case]:
    """Yields clip, dual clip, and the losses other than PPO's."""
    yield compared("loss", "clip 0.2, 0.28")
    yield compared("loss", "dual clip 1.3", clip=Method(dual_clip=1.3))
    why = "verl's is always on (3 by default); ours is null where none is named. verl is told a far bound."
    yield compared("loss", "no dual clip, 1.2 left on in verl", theirs=Method(dual_clip=1.2), differs=why)
    yield compared("loss", "gspo", "gspo")
    yield compared("loss", "cispo", "cispo")
    stepwise = recipe(judged=True, advantage="step-wise", sequences="step")
    yield compared("loss", "step-wise advantages, a row for each step", used=stepwise, votes=True)


def of_aggregations() -> Iterator[Case]:
    """Yields ways to aggregate tokens, with verl's divisors alone and with our factors."""
    why = "verl divides by all rows, those that only fill the batch too, and a split rollout counts twice. Ours is taken, by a factor on the advantages."  # noqa: E501
    for mode in ("token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"):
        for weigh in ("rollout", "sequence"):
            used = recipe(aggregation=mode, weigh=weigh)
            yield compared("aggregation", f"{mode}, weigh {weigh}", used=used)
        if mode != "token-mean":
            yield compared(
                "aggregation", f"{mode}, verl alone", used=recipe(aggregation=mode), ours=False,
                differs=why,
            )  # fmt: skip


def of_switches() -> Iterator[Case]:
    """Yields all settings of the three switches for a rollout's own end.

    The remaining rows must train as ours do.
    """
    names = ("mask", "leave_baseline", "drop_group")
    for chosen in range(1, 8):
        on = [name for place, name in enumerate(names) if chosen >> place & 1]
        switches = {name: ["step_limit"] for name in on}
        used = recipe(failures=switches, aggregation="seq-mean-token-mean")
        yield compared("switch", " and ".join(on), used=used)


def of_divergences() -> Iterator[Case]:
    """Yields the divergence from the start model, low_var_kl."""
    for mode, differs in (
        ("token-mean", ""),
        ("seq-mean-token-sum", "the factor is on advantages alone: verl's divergence is divided by all rows. Verl's is taken."),  # noqa: E501
    ):  # fmt: skip
        used = recipe(aggregation=mode)
        given, method = batch(used), used.method
        numbers, tokens = Numbers.of(given.mask.shape), given.mask.sum().item()
        config = actor(mode, CLIP, len(given.keys), tokens)
        loss = verl_loss("clipped", numbers, through_verl(given, method, 0), given.mask, config)
        divergence = kl_penalty(numbers.now, numbers.start, "low_var_kl")
        loss = loss + 0.01 * agg_loss(divergence, given.mask, mode, **config.global_batch_info)
        one = gradient(our_loss("clipped", numbers, given, CLIP, kl=0.01), numbers.now)
        yield Case("divergence", f"0.01 low_var_kl, {mode}", one, gradient(loss, numbers.now), differs)
    start, mask = torch.tensor([4.0]), torch.tensor([True])
    ours = kl_to_reference(torch.zeros(1), start, mask).tolist()
    why = "verl cuts the estimate at 10. Verl's is taken: policies this far apart are lost."
    yield Case(
        "divergence", "a token of estimate 49.6", ours, kl_penalty(torch.zeros(1), start, "k3").tolist(), why
    )


def corrected(name: str, rule: Mismatch, differs: str = "", mode: str = "token-mean", **keys: object) -> Case:
    """Compares both sides on a batch in which trainer and engine differ.

    keys: verl's keys of the same meaning.
    """
    used = recipe(aggregation=mode)
    given, method = batch(used), used.method
    numbers, tokens = Numbers.of(given.mask.shape), given.mask.sum().item()
    trust, kept, _ = compute_rollout_correction_and_rejection_mask(
        numbers.old, numbers.engine, given.mask, **keys
    )
    weights = trust.batch["rollout_is_weights"] if trust else None
    told = through_verl(given, method, HORIZON, kept)
    config = actor(mode, CLIP, len(given.keys), tokens, HORIZON)
    one = gradient(our_loss("clipped", numbers, given, CLIP, rule), numbers.now)
    other = gradient(verl_loss("clipped", numbers, told, kept, config, weights), numbers.now)
    return Case("mismatch", name, one, other, differs)


def of_mismatches() -> Iterator[Case]:
    """Yields truncated importance sampling, IcePop, and masks of sequences."""
    token = {"rollout_is": "token", "rollout_is_threshold": 1.5}
    yield corrected("TIS 1.5", Mismatch(truncate=1.5), **token)
    icepop = {"rollout_is": "token", "rollout_is_threshold": "0.7_1.5"}
    yield corrected("IcePop 0.7 to 1.5", Mismatch(truncate=1.5, mask_below=0.7, mask_above=1.5), **icepop)
    masked = {"rollout_rs": "token_k1", "rollout_rs_threshold": f"{1 / 1.5}_{1 / 0.7}"}
    rule = Mismatch(mask_below=0.7, mask_above=1.5)
    yield corrected("tokens out of 0.7 to 1.5 masked", rule, **masked)
    for mode in ("seq-mean-token-sum", "seq-mean-token-mean"):
        yield corrected(f"tokens masked, {mode}", rule, mode=mode, **masked)
    straight = {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.7_1.5"}
    why = "verl's bounds are of engine / trainer, ours of trainer / engine. 1 / bound is handed to verl."
    yield corrected("the same bounds not inverted", rule, why, **straight)
    whole = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": f"{1 / 1.05}_{1 / 0.9}"}
    yield corrected(
        "sequences out of 0.9 to 1.05 masked",
        Mismatch(level="sequence", mask_below=0.9, mask_above=1.05),
        **whole,
    )
    both = {**token, **masked}
    yield corrected(
        "TIS 1.2 within masks",
        Mismatch(truncate=1.2, mask_below=0.7, mask_above=1.5),
        **{**both, "rollout_is_threshold": 1.2},
    )
    product = {"rollout_is": "sequence", "rollout_is_threshold": 1.5}
    why = "verl weighs by the product of a sequence's ratios, ours by their geometric mean. Refused on verl."
    yield corrected("sequence TIS 1.5", Mismatch(level="sequence", truncate=1.5), why, **product)
