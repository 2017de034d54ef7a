"""Estimates the memory that a training needs, from the model's shape and the settings.

With P weights, T of them trained, s bytes per number, R ranks that share them (FSDP), L tokens of the largest
forward pass:

    weights     P s / R, twice with a reference model (DPO, a divergence from the start). With several ranks,
                also two layers, or the embedding, which are unsharded while they are used
    gradients   T s / R, or the gradients of one layer if the optimizer steps in the backward pass
    optimizer   2 T s / R: the two moments of AdamW
    activations L s x layers x the activations of one layer per token. With activation checkpointing,
                L s x layers x width, and the activations of one layer. The latter may reuse the memory of
                logits that are already freed
    logits      L times the size of the vocabulary, and tensors that the loss computes from the logits

Where the optimizer steps on weights in fp32 and the model computes in bf16 (`masters`), weights, gradients
and moments have 4 bytes per number. A single rank also holds a copy of the weights in bf16. Several ranks
copy only what is unsharded.

The activations of one layer are `WIDTHS` times the model's width, its key-value width and its feed-forward
width, per token. The callers, `swelab.sft.train.preflight` and `swelab.rl.memory_needs`, document the
accuracy.
"""

from dataclasses import dataclass, fields

from swelab.files.model_config import ModelConfig
from swelab.machine import GIB

BYTES = {"fp32": 4, "bf16": 2}
Widths = tuple[int, int, int]


@dataclass(frozen=True)
class Memory:
    """The memory of one rank in bytes, by content."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float

    @property
    def resident(self) -> float:
        """Bytes that stay allocated between two passes: weights, gradients and optimizer state."""
        return self.weights + self.gradients + self.optimizer

    @property
    def total(self) -> float:
        """All bytes together."""
        return self.resident + self.activations + self.logits

    def __str__(self) -> str:
        return ", ".join(f"{part.name} {getattr(self, part.name) / GIB:.1f}" for part in fields(Memory))


def whole_weights(config: ModelConfig) -> int:
    """Returns the number of weights that a rank holds unsharded at the same time.

    These are two layers, or all weights outside of layers if these are more.
    """
    outside = config.weights - config.num_hidden_layers * config.layer_weights
    return max(2 * config.layer_weights, outside)


def activations(config: ModelConfig, widths: Widths, checkpointing: bool) -> tuple[int, int]:
    """Returns the number of activations per token, as (kept, recomputed).

    kept: numbers that all layers keep for the backward pass. recomputed: numbers that one layer recomputes.
    """
    shape = (config.hidden_size, config.key_width, config.intermediate_size)
    layer = sum(count * width for count, width in zip(widths, shape, strict=True))
    stay = config.hidden_size if checkpointing else layer
    return config.num_hidden_layers * stay, layer * checkpointing


def estimate(
    config: ModelConfig,
    size: int,
    tokens: int,
    logits: float,
    *,
    widths: Widths,
    ranks: int = 1,
    copies: int = 1,
    trainable: int | None = None,
    in_backward: bool = False,
    checkpointing: bool = False,
    overlap: bool = True,
    masters: bool = False,
) -> Memory:
    """Returns the memory of one rank.

    size: bytes per number. logits: bytes of all logits. copies: number of copies of the weights. trainable:
    number of weights that training changes, or None for all weights. in_backward: whether the optimizer steps
    in the backward pass. overlap: whether the logits are still in memory when a layer's activations are
    recomputed. masters: whether the optimizer steps on weights in fp32 and the model computes with copies.
    """
    wide = BYTES["fp32"] if masters else size
    numbers = (config.weights if trainable is None else trainable) * wide / ranks
    copied = whole_weights(config) if ranks > 1 else config.weights * masters
    stay, again = (tokens * size * count for count in activations(config, widths, checkpointing))
    return Memory(
        weights=config.weights * (wide + size * (copies - 1)) / ranks + copied * size,
        gradients=config.layer_weights * size if in_backward else numbers,
        optimizer=2 * numbers,
        activations=stay + (again if overlap else max(0, again - logits)),
        logits=logits,
    )
