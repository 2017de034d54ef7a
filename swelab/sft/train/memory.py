"""How much memory a rank needs to train, estimated from a model's shape and the settings.

With P weights, T of them trained, s bytes a number, R ranks that share them (FSDP), B × L tokens a pass:

    weights     P s / R, and two layers whole while they are used; DPO holds the reference's too
    gradients   T s / R, or one layer's where the optimizer steps in the backward pass
    moments     2 T s / R (AdamW)
    activations B L s × layers × width with checkpointing, else B L s × layers × one layer's, which are about
                16 widths + 6 key-value widths + 5 feed-forward widths a token
    transient   the larger of what is held for a while only: one layer's activations, when checkpointed; the
                logits, B L V × (s + 4), or 2 s when compiled, and 8 bytes for each of one chunk of eight
DPO runs both sides at once, and its logits, 2 B L V × (2 s + 4), in one chunk.

Held against measured peaks by tests and in docs/training.md; it is meant to be right within a factor of two.
"""

from dataclasses import dataclass

from swelab.configs.kinds.sft import Lora, Train
from swelab.files.model_config import ModelConfig
from swelab.machine import GIB
from swelab.sft.train.families import FAMILIES, UNKNOWN

BYTES = {"fp32": 4, "bf16": 2}
CHUNKS = 8
"""Of torchtune's chunked cross-entropy."""


@dataclass(frozen=True)
class Memory:
    """Bytes a rank needs, by what they hold."""

    weights: float
    gradients: float
    moments: float
    activations: float
    transient: float

    @property
    def total(self) -> float:
        """All together."""
        return self.weights + self.gradients + self.moments + self.activations + self.transient

    def text(self) -> str:
        """The parts in GiB, on one line."""
        parts = ("weights", "gradients", "moments", "activations", "transient")
        said = ", ".join(f"{name} {getattr(self, name) / GIB:.1f}" for name in parts)
        return f"{self.total / GIB:.1f} GiB a rank ({said})"


def weights_of(config: ModelConfig) -> int:
    """Number of weights of a model by its config.json; an unknown architecture counts as Qwen2's."""
    embeddings = config.vocab_size * config.hidden_size * (1 if config.tie_word_embeddings else 2)
    return embeddings + config.num_hidden_layers * layer_weights(config) + config.hidden_size


def layer_weights(config: ModelConfig) -> int:
    """Number of weights of one layer."""
    family = FAMILIES.get("".join(config.architectures[:1]), UNKNOWN)
    biases = family.bias * (config.query_width + 2 * config.key_width)
    norms = 2 * config.hidden_size + family.head_norms * 2 * config.head_width
    return config.layer_matrices + biases + norms


def adapter_weights(config: ModelConfig, lora: Lora) -> int:
    """Number of weights of the low-rank adapters."""
    width, narrow, inner = config.hidden_size, config.key_width, config.intermediate_size
    sides = {
        "q_proj": 2 * width,
        "output_proj": 2 * width,
        "k_proj": width + narrow,
        "v_proj": width + narrow,
    }
    found = sum(sides[name] for name in lora.attention) + lora.mlp * 3 * (width + inner)
    return int(config.num_hidden_layers * lora.rank * found)


def trained_weights(config: ModelConfig, train: Train) -> int:
    """Number of weights that training changes."""
    return adapter_weights(config, train.lora) if train.lora else weights_of(config)


def estimate(config: ModelConfig, train: Train, ranks: int, batch: int, tokens: int, size: int) -> Memory:
    """Memory of one of `ranks` that share the weights and run `batch` conversations of `tokens` each at once.

    size: bytes a number.
    """
    every, trained = weights_of(config), trained_weights(config, train)
    layer, dpo = layer_weights(config), bool(train.dpo)
    # Embedding and output are gathered as one piece with what no layer holds.
    whole = max(2 * layer, every - config.num_hidden_layers * layer) if ranks > 1 else 0
    places = batch * tokens * (2 if dpo else 1)
    one = 16 * config.hidden_size + 6 * config.key_width + 5 * config.intermediate_size
    kept = config.hidden_size if train.activation_checkpointing else one
    logits = places * config.vocab_size * _logit_bytes(train, size)
    return Memory(
        weights=(every * (2 if dpo else 1) / ranks + whole) * size,
        gradients=layer * size if train.optimizer_in_bwd else trained * size / ranks,
        moments=2 * trained * size / ranks,
        activations=places * size * config.num_hidden_layers * kept,
        transient=max(logits, places * size * one * train.activation_checkpointing),
    )


def _logit_bytes(train: Train, size: int) -> float:
    """Bytes for each logit: itself, and its gradient or logarithm of softmax."""
    if train.dpo:
        return 2 * size + 4
    return (2 * size if train.compile else size + 4) + 8 / CHUNKS
