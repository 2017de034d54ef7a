"""Trains a policy by optimizer steps on its samples, and saves its checkpoints.

Weights are read and written in Hugging Face layout. With several ranks, each process has its own `Learner`,
which holds its share of the weights and of the optimizer state. `ranked_learner` starts the processes and
divides the batches.

A model that computes in bfloat16 has a copy of its weights in float32. A weight in bfloat16 has 8 significant
bits. A step of AdamW at a learning rate of 1e-6 is smaller than half of its last bit, so a step on weights in
bfloat16 leaves nearly all of them as they were. Therefore the optimizer steps on weights in float32, which
also collect the gradients. The model computes with copies.
"""

import os
import pickle
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn import Parameter
from torch.utils.checkpoint import checkpoint as recomputed

from swelab.configs.kinds.rl import Rl
from swelab.records import Fault, InputError, read_json, write_json
from swelab.rl.batch_shares import Share, TrainingSample, passes, shares
from swelab.rl.losses import LOSSES, kl_to_reference, mismatch_weights
from swelab.rl.memory_needs import LOGITS
from swelab.rl.samples import Sample
from swelab.sft.train.device import dtype_of
from swelab.sft.train.step_log import peak_memory

PROBE = 8
"""Number of tokens with which a model's log-probabilities are checked."""


class Scorer(torch.nn.Module):
    """Computes log-probabilities of sampled ids under a model at a temperature. spread: whether to compute
    gradients of the entropy."""

    def __init__(self, model: Any, temperature: float, spread: bool = False):
        super().__init__()
        self.model, self._temperature, self._spread = model, temperature, spread

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Returns two tensors [rows, tokens]: the log-probability and the entropy at each trained id, and 0
        elsewhere."""
        hidden = self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state[:, :-1]
        chosen = mask[:, 1:]
        states, targets = hidden[chosen], ids[:, 1:][chosen]
        size = max(1, LOGITS // self.model.config.vocab_size)
        parts = list(zip(states.split(size), targets.split(size), strict=True))
        if len(parts) > 1 and torch.is_grad_enabled():
            found = [recomputed(self._head, *part, use_reentrant=False) for part in parts]
        else:
            found = [self._head(*part) for part in parts]
        zeros = torch.zeros(ids.shape, device=ids.device)
        place = torch.nn.functional.pad(chosen, (1, 0))
        scored, spread = (zeros.masked_scatter(place, torch.cat(each)) for each in zip(*found, strict=True))
        return scored, spread

    def _head(self, states: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        logits = scale_logits(self.model.get_output_embeddings()(states).float(), self.model.config)
        logs = (logits / self._temperature).log_softmax(-1)
        with torch.set_grad_enabled(self._spread and torch.is_grad_enabled()):
            spread = -(logs.exp() * logs).sum(-1)
        return logs.gather(1, targets[:, None])[:, 0], spread


def scale_logits(logits: Tensor, config: Any) -> Tensor:
    """Returns the logits as the model's own forward pass scales them: Granite divides, Cohere multiplies,
    Gemma bounds them. transformers does this outside of the output layer."""
    if divisor := getattr(config, "logits_scaling", None):
        logits = logits / divisor
    if factor := getattr(config, "logit_scale", None):
        logits = logits * factor
    if bound := getattr(config, "final_logit_softcapping", None):
        logits = torch.tanh(logits / bound) * bound
    return logits


@torch.no_grad()
def check_scores(scorer: Scorer, checkpoint: Path) -> None:
    """Raises InputError if the log-probabilities of a model on the CPU are not those of its own forward pass.
    Such a model changes its logits in a way that `scale_logits` does not know."""
    model = scorer.model
    ids = torch.arange(1, 1 + PROBE).remainder(model.config.vocab_size)[None]
    ours, _ = Scorer(model, 1.0)(ids, torch.ones_like(ids, dtype=torch.bool))
    logs = model(input_ids=ids, use_cache=False).logits[:, :-1].float().log_softmax(-1)
    theirs = logs.gather(-1, ids[:, 1:, None])[..., 0]
    finite = theirs.isfinite().all()  # the training itself reports weights that are no numbers
    if finite and not torch.allclose(ours[:, 1:], theirs, atol=1e-3):
        apart = (ours[:, 1:] - theirs).abs().max().item()
        what = f"{type(model).__name__} scales its logits in a way that is not known here"
        raise InputError(f"{what} (log-probabilities differ by {apart:.2g})", checkpoint, "another model")


def load_model(checkpoint: Path, dtype: str, recompute: bool = False) -> Any:
    """Loads a checkpoint's model on the CPU, without dropout, because the engine samples without dropout.
    recompute: whether the backward pass recomputes each layer's activations. Raises InputError."""
    from transformers import AutoModelForCausalLM

    try:
        model: Any = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=getattr(torch, dtype))
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise InputError(f"not weights that can be trained: {error}", checkpoint) from None
    model.eval()
    if recompute:
        model.activation_checkpointing_enable({"use_reentrant": False})
        for layer in layers_of(model):
            layer.training = True  # checkpointing needs this; the layer's submodules stay in evaluation mode
    return model


def layers_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Returns the layers of a transformers model."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    return [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]


def place(policy: Scorer, device: str, mesh: DeviceMesh | None, dtype: torch.dtype) -> Scorer:
    """Moves the policy to its device. With a mesh, each rank holds a share of the weights (FSDP2), and
    computes in `dtype` with copies of them.

    Gradients are summed over the ranks, not averaged, because a token's weight is its share in the loss of
    the whole batch.
    """
    if mesh is None:
        return policy.to(device)
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

    types = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for layer in layers_of(policy):
        fully_shard(layer, mesh=mesh, mp_policy=types)
    fully_shard(policy, mesh=mesh, mp_policy=types)
    for module in policy.modules():
        if isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
            module.set_gradient_divide_factor(1.0)
    return policy


def pad(samples: Sequence[Sample], device: str) -> tuple[Tensor, Tensor]:
    """Returns ids and mask, [rows, longest length]. Padding is at the end, where causal attention ignores
    it."""
    width = max(len(sample.ids) for sample in samples)
    ids = torch.zeros((len(samples), width), dtype=torch.long)
    mask = torch.zeros((len(samples), width), dtype=torch.bool)
    for row, sample in enumerate(samples):
        ids[row, : len(sample.ids)] = torch.tensor(sample.ids)
        mask[row, : len(sample.ids)] = torch.tensor(sample.mask, dtype=torch.bool)
    return ids.to(device), mask.to(device)


def padded_values(values: Sequence[Sequence[float]], width: int, device: str) -> Tensor:
    """Returns one number per token, [rows, width], padded with 0 at the end of each row."""
    found = torch.zeros((len(values), width))
    for row, each in enumerate(values):
        found[row, : len(each)] = torch.tensor(each)
    return found.to(device)


STATE = "learner.pt"


def whole(value: Any, everywhere: bool = True) -> Any:
    """Returns `value` with each sharded tensor gathered from all ranks, also in nested dicts and lists. All
    ranks must call this. everywhere: if false, this rank gets None instead of the gathered tensors."""
    if isinstance(value, dict):
        return {key: whole(each, everywhere) for key, each in value.items()}
    if isinstance(value, list):
        return [whole(each, everywhere) for each in value]
    if not isinstance(value, DTensor):
        return value
    full = value.full_tensor()
    return (full.detach().cpu() if value.ndim else full) if everywhere else None


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Writes the optimizer state, the number of steps and the random state into a checkpoint. Also writes the
    weights in float32 if the checkpoint's own are not."""
    torch.save(state, folder / STATE)


def read_state(
    folder: Path, optimizer: torch.optim.Optimizer, device: str, trained: Mapping[str, torch.Tensor]
) -> dict[str, int]:
    """Loads a checkpoint's optimizer state, and the weights that it holds in float32 into `trained`. Returns
    its numbers of steps and batches. If ranks share the weights, each rank loads its share. Raises
    InputError."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    try:
        shared = any(isinstance(weight, DTensor) for weight in weights)
        state = torch.load(folder / STATE, map_location="cpu" if shared else device, weights_only=True)
        moments = state["optimizer"]["state"]
        for number, weight in enumerate(weights):
            if isinstance(weight, DTensor) and number in moments:
                moments[number] = {name: _share(each, weight) for name, each in moments[number].items()}
        optimizer.load_state_dict(state["optimizer"])
        with torch.no_grad():
            for name, weight in state.get("weights", {}).items():
                own = trained[name]
                own.copy_(_share(weight, own) if isinstance(own, DTensor) else weight)
        torch.set_rng_state(state["random"].cpu())
        return {name: int(state[name]) for name in ("steps", "batches") if name != "batches" or name in state}
    except _UNREADABLE as error:
        why = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        told = f"the optimizer's state {why}; without it training does not go on from this checkpoint"
        todo = f"remove {folder}: training goes on from the one before it, and samples nothing again"
        raise InputError(told, folder / STATE, f"the file that this training wrote; {todo}") from None


_UNREADABLE = (
    OSError,
    RuntimeError,
    ValueError,
    LookupError,
    EOFError,
    TypeError,
    AttributeError,
    pickle.UnpicklingError,
)


def _share(value: Any, weight: DTensor) -> Any:
    """Returns this rank's shard of `value` if it is a tensor with the shape of `weight`. Returns any other
    value unchanged."""
    if not isinstance(value, torch.Tensor) or value.shape != weight.shape:
        return value
    return distribute_tensor(
        value.to(weight.device), weight.device_mesh, weight.placements, src_data_rank=None
    )


class MasterWeights:
    """The weights of a model in float32, and their copies in bfloat16, with which the model computes."""

    def __init__(self, model: Any):
        """Turns the model's weights, which are float32, into copies. A backward pass moves the gradients of
        the copies to `weights`."""
        self.weights = dict[str, Parameter]()
        self._copies = dict[str, Parameter](model.named_parameters())
        for name, copy in self._copies.items():
            self.weights[name] = Parameter(copy.data)
            copy.data = copy.data.to(torch.bfloat16)
            copy.register_post_accumulate_grad_hook(partial(_move_gradient, self.weights[name]))

    @torch.no_grad()
    def copy(self) -> None:
        """Copies the weights to the model."""
        for name, weight in self.weights.items():
            self._copies[name].copy_(weight)


def _move_gradient(weight: Parameter, copy: Tensor) -> None:
    if copy.grad is not None:
        gradient = copy.grad.float()
        weight.grad = gradient if weight.grad is None else weight.grad.add_(gradient)
        copy.grad = None


@dataclass
class Sums:
    """The sum and the largest value of each figure over trained tokens."""

    tokens: int = 0
    totals: dict[str, float] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)

    def add(self, mask: Tensor, **values: Tensor) -> None:
        """Adds the values at the tokens in `mask`."""
        self.tokens += int(mask.sum())
        for name, value in values.items():
            self.totals[name] = self.totals.get(name, 0.0) + float(value[mask].double().sum())

    def most(self, mask: Tensor, **values: Tensor) -> None:
        """Keeps the largest of the values at the tokens in `mask`."""
        for name, value in values.items() if mask.any() else ():
            self.largest[name] = max(self.largest.get(name, 0.0), float(value[mask].max()))

    def join(self, other: "Sums") -> None:
        """Adds the figures of `other`."""
        self.tokens += other.tokens
        for name, total in other.totals.items():
            self.totals[name] = self.totals.get(name, 0.0) + total
        for name, value in other.largest.items():
            self.largest[name] = max(self.largest.get(name, 0.0), value)

    def means(self) -> dict[str, float]:
        """Returns the mean per token of each summed figure, and each largest value."""
        return {name: total / self.tokens for name, total in self.totals.items()} | self.largest


__all__ = ["STATE", "Learner", "NotFinite", "TrainingSample", "Trainee"]


class NotFinite(Fault):
    """A loss or gradient is not finite. The optimizer step was not made, so the weights are unchanged."""


DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
"""Torch's name of each dtype in recipes. A model computes in it and is saved in it; the optimizer steps on
weights in float32."""


class Trainee(Protocol):
    """A policy in training, in one process or in several."""

    def train(self, batch: Sequence[TrainingSample]) -> dict[str, float]:
        """Trains one batch in `minibatches` optimizer steps, and returns the figures. Raises NotFinite."""

    def save(self, folder: Path) -> None:
        """Writes a checkpoint in Hugging Face layout, with the state for resuming. A kill leaves no partial
        checkpoint."""

    def resume(self, folder: Path) -> None:
        """Loads the optimizer state of a checkpoint whose weights are already loaded. Raises InputError."""

    def peak_mib(self) -> float:
        """Returns the peak memory of one process in MiB: tensors on a GPU, or all memory on a CPU."""


class Learner:
    """Trains a policy with an optimizer.

    If the loss includes the KL divergence from the starting policy, a copy of the starting policy is loaded
    too. mesh: the ranks that share the weights, including this process, or None with a single process.
    """

    def __init__(
        self,
        checkpoint: Path,
        recipe: Rl,
        device: str = "cpu",
        start: Path | None = None,
        mesh: DeviceMesh | None = None,
    ):
        """Loads the weights. Raises InputError if a checkpoint cannot be loaded. start: the starting policy's
        checkpoint, by default `checkpoint`."""
        self.settings, self.method = recipe.train, recipe.method
        self.device, self.mesh, self.steps, self.batches = device, mesh, 0, 0
        dtype, temperature = DTYPES[dtype_of(recipe.train)], recipe.rollouts.temperature
        self.model = load_model(checkpoint, "float32", self.settings.activation_checkpointing)
        scorer = Scorer(self.model, temperature, bool(self.method.entropy))
        check_scores(scorer, checkpoint)
        self.policy = place(scorer, device, mesh, getattr(torch, dtype))
        self.masters = MasterWeights(self.model) if dtype == "bfloat16" and mesh is None else None
        self._dtype = getattr(torch, dtype)
        self.reference: Scorer | None = None
        if self.method.kl:
            begun = Scorer(load_model(start or checkpoint, dtype), temperature)
            self.reference = place(begun, device, mesh, self._dtype)
        self._files = checkpoint
        trained = self._master_weights().values()
        weights = [p for p in trained if p.ndim > 1]
        others = [p for p in trained if p.ndim <= 1]
        groups = [
            {"params": weights, "weight_decay": self.settings.weight_decay},
            {"params": others, "weight_decay": 0.0},
        ]
        first, second = self.settings.betas
        self.optimizer = torch.optim.AdamW(groups, lr=self.settings.lr, betas=(first, second))

    def _master_weights(self) -> dict[str, Any]:
        """Returns the weights on which the optimizer steps, which are float32, by name."""
        return self.masters.weights if self.masters else dict(self.model.named_parameters())

    def logprobs(self, samples: Sequence[Sample]) -> list[list[float]]:
        """Returns the log-probability of each trained id at the sampling temperature. Other ids get 0.0."""
        found: list[list[float]] = [[] for _ in samples]
        for rows in passes([len(sample.ids) for sample in samples], self.settings.batch_tokens)[0]:
            scored = self._score([samples[row] for row in rows])
            for row, values in zip(rows, scored.tolist(), strict=True):
                found[row] = values[: len(samples[row].ids)]
        return found

    def train(self, batch: Sequence[TrainingSample]) -> dict[str, float]:
        """See `Trainee`. The message of NotFinite contains the names of the samples. A failed optimizer step
        does not change the weights."""
        (mine,) = shares(batch, self.settings.minibatches, self.settings.batch_tokens)
        return self.train_share(mine)

    def train_share(self, share: Share) -> dict[str, float]:
        """Trains this rank's share of a batch, and returns figures of the whole batch. Raises NotFinite."""
        self.batches += 1
        if not share:
            return {"tokens": 0.0}
        old: list[list[Tensor | None]] = [[None] * len(step) for step in share]
        if len(share) > 1:
            old = [[self._score([each.sample for each in rows]) for rows in step] for step in share]
        sums, found = Sums(), {}
        for step, known in zip(share, old, strict=True):
            found = self._step(step, known, sums, len(share))
        return {"tokens": float(sums.tokens), **sums.means(), **found}

    def _step(
        self, step: list[list[TrainingSample]], old: list[Tensor | None], sums: Sums, count: int
    ) -> dict[str, float]:
        """Makes one of a batch's `count` optimizer steps. Each step's loss is `count` times its share in the
        batch's loss, so that it is a mean over the step's samples."""
        self.optimizer.zero_grad(set_to_none=True)
        total, fault, measured = 0.0, "", Sums()
        for number, (rows, known) in enumerate(zip(step, old, strict=True), 1):
            losses = self._losses(rows, known, measured) * count
            fault = fault or nonfinite_rows(losses, rows, f"micro-batch {number} of {len(step)}")
            losses.sum().backward()
            total += losses.sum().item()
        every = self._gather((total, fault, measured))
        if faults := [each for _, each, _ in every if each]:
            raise NotFinite("; ".join(faults))
        norm = self._norm(self.settings.max_grad_norm)
        if not torch.isfinite(norm):
            raise NotFinite(f"the gradient's norm is {norm.item()} in {self._culprit(step, old)}")
        self.steps += 1
        rate = self.rate()
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.step()
        if self.masters:
            self.masters.copy()
        for *_, each in every:
            sums.join(each)
        return {"loss": sum(each for each, *_ in every), "grad_norm": norm.item(), "lr": rate}

    def rate(self) -> float:
        """Returns the learning rate of the present batch. As in verl, it grows from 0 over the first
        `warmup_steps` batches."""
        warm = self.settings.warmup_steps
        return self.settings.lr * (min(1.0, (self.batches - 1) / warm) if warm else 1.0)

    def _norm(self, most: float) -> Tensor:
        """Clips the gradient of all weights on all ranks to norm `most`. Returns the norm before clipping."""
        norm: Tensor = whole(torch.nn.utils.clip_grad_norm_(self._master_weights().values(), most))
        return norm

    def _culprit(self, step: list[list[TrainingSample]], old: list[Tensor | None]) -> str:
        """Returns a description of the first forward pass whose gradient is not finite."""
        for number, (rows, known) in enumerate(zip(step, old, strict=True), 1):
            self.optimizer.zero_grad(set_to_none=True)
            self._losses(rows, known, Sums()).sum().backward()
            if not torch.isfinite(self._norm(self.settings.max_grad_norm)):
                told = ", ".join(filter(None, self._gather(names(rows))))
                return f"micro-batch {number} of {len(step)} ({told})"
        return f"the sum of {len(step)} micro-batches, none of them alone"

    def _gather(self, values: Any) -> list[Any]:
        """Gathers one value from each rank, in the order of ranks."""
        if self.mesh is None:
            return [values]
        found: list[Any] = [None] * self.mesh.size()
        torch.distributed.all_gather_object(found, values, self.mesh.get_group())
        return found

    def _score(self, samples: Sequence[Sample]) -> Tensor:
        """Returns log-probabilities [rows, tokens] under the current weights, without gradient."""
        with torch.no_grad():
            scored: Tensor = self.policy(*pad(samples, self.device))[0]
        return scored

    def _losses(self, batch: list[TrainingSample], old: Tensor | None, sums: Sums) -> Tensor:
        """Returns each sample's share of the batch's loss [rows], with gradients. The share is NaN if one of
        the engine's log-probabilities is not finite."""
        ids, mask = pad([each.sample for each in batch], self.device)
        logprobs, entropy = self.policy(ids, mask)
        width = ids.shape[1]
        advantages = padded_values([each.advantages for each in batch], width, self.device)
        weights = padded_values([each.weights for each in batch], width, self.device)
        engine = padded_values([each.sample.logprobs for each in batch], width, self.device)
        before = logprobs.detach() if old is None else old
        losses, cut = LOSSES[self.method.loss](logprobs, before, advantages, mask, self.method)
        trust = mismatch_weights(before, engine, mask, self.method.mismatch)
        losses = losses * trust
        apart = (before - engine).abs()
        measured = {
            "entropy": entropy.detach(),
            "clipped": cut.double(),
            "ratio": torch.exp(logprobs.detach() - before),
            "masked_by_mismatch": (trust == 0).double(),
            "logprob_mismatch": apart,
        }
        if self.reference is not None:
            with torch.no_grad():
                start, _ = self.reference(ids, mask)
            divergence = kl_to_reference(logprobs, start, mask)
            losses = losses + self.method.kl * divergence
            measured["kl"] = divergence.detach()
        if self.method.entropy:
            losses = losses - self.method.entropy * entropy
        sums.add(mask, **measured)
        sums.most(mask, logprob_mismatch_max=apart)
        known = torch.where(torch.isfinite(engine).all(-1), 1.0, torch.nan)
        return (losses * weights).sum(-1) * known

    def save(self, folder: Path) -> None:
        """See `Trainee`. Every rank must call this. Only the first rank writes."""
        first = self.mesh is None or self.mesh.get_rank() == 0
        weights = whole(self._master_weights(), first)
        state = {
            "optimizer": whole(self.optimizer.state_dict(), first),
            "steps": self.steps,
            "batches": self.batches,
            "random": torch.get_rng_state(),
            **({"weights": weights} if self._dtype != torch.float32 else {}),
        }
        if first:
            staged = folder.with_name(f".{folder.name}.part")
            shutil.rmtree(staged, ignore_errors=True)
            shutil.copytree(self._files, staged, ignore=shutil.ignore_patterns("*.safetensors*", STATE))
            self._save_weights(staged, weights)
            write_state(staged, state)
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(staged, folder)
        self._files = folder  # the checkpoint from which the run resumed will be removed
        self._gather(None)

    def _save_weights(self, folder: Path, weights: dict[str, Tensor]) -> None:
        """Saves the weights in the dtype in which the model computes."""
        if self.mesh is None:
            self.model.save_pretrained(folder)
            return
        stored = {name: weight.to(self._dtype) for name, weight in weights.items()}
        self.model.save_pretrained(folder, state_dict=stored)
        config = {**read_json(folder / "config.json"), "dtype": str(self._dtype).removeprefix("torch.")}
        write_json(folder / "config.json", config)

    def resume(self, folder: Path) -> None:
        """See `Trainee`. The saved state may come from a run with a different number of ranks."""
        state = read_state(folder, self.optimizer, self.device, self._master_weights())
        self.steps = state["steps"]
        self.batches = state.get("batches", self.steps // self.settings.minibatches)
        if self.masters:
            self.masters.copy()

    def peak_mib(self) -> float:
        """See `Trainee`."""
        return peak_memory(self.device.partition(":")[0])


def nonfinite_rows(losses: Tensor, rows: Sequence[TrainingSample], place: str) -> str:
    """Returns a message that names the rows whose losses are not finite, or "" if all losses are finite.
    losses: [rows]."""
    wrong = [row for row, good in zip(rows, torch.isfinite(losses).tolist(), strict=True) if not good]
    return f"the loss of {names(wrong)} is no number, in {place} ({names(rows)})" if wrong else ""


def names(rows: Sequence[TrainingSample]) -> str:
    """Returns the names of the samples' rollouts, without duplicates."""
    return ", ".join(dict.fromkeys(each.name for each in rows if each.name))
