"""Computes log-probabilities of sampled tokens. Also loads the policy's model and shards it among ranks.

The model comes from transformers, so that every architecture that can be served can also be trained.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.checkpoint import checkpoint as recomputed

from swelab.records import InputError
from swelab.rl.memory_needs import LOGITS
from swelab.rl.samples import Sample

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
