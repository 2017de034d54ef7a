"""How much memory a training on test results needs, estimated from the model's shape and the recipe.

With P weights, s bytes a number, R ranks that share them (FSDP2), L tokens of the largest forward pass:

    weights     P s / R, twice where a divergence from the start is trained on; with several ranks also two
                layers, or the embedding, whole while they are used
    optimizer   3 P s / R: gradients, and AdamW's two moments
    activations L s x layers x width with activation checkpointing, and one layer's; else L s x layers x one
                layer's, about 12 widths + 4 key-value widths + 4 feed-forward widths a token
    logits      16 bytes for each logit of a trained token over the vocabulary, 20 where entropy is rewarded,
                `LOGITS` of them at most
    program     Python with torch and transformers

L is `train.batch_tokens`, or `rollouts.context_length` where that is more, as a longer sequence goes alone.
The engine holds the weights once more and, for each token of its cache, keys and values of each layer.

On a CPU in fp32 the learner's estimate is 0.95 to 1.12 times the five peaks that it was fitted to (passes of
512 and 4096 tokens, with and without activation checkpointing, divergence and entropy); a test holds it
within a factor of 1.5. On GPUs, and for the engine, it was not measured.
"""

from dataclasses import dataclass

from swelab.configs.kinds.rl import Rl
from swelab.files.model_config import ModelConfig
from swelab.machine import GIB
from swelab.models.serving.engine import CPU_CACHE
from swelab.sft.train.memory import BYTES, layer_weights, weights_of

LOGITS = 1 << 27
"""Logits over the vocabulary that a learner holds at once; of more the backward pass makes each anew."""
PROGRAM = 0.45 * GIB
ENGINE = 1.5 * GIB
"""Of a model server, without weights and cache."""


@dataclass(frozen=True)
class Needs:
    """Bytes of one rank of the learner, by what they hold."""

    weights: float
    optimizer: float
    activations: float
    logits: float
    program: float

    @property
    def total(self) -> float:
        """All together."""
        return self.on_device + self.program

    @property
    def on_device(self) -> float:
        """What lies in a GPU's memory, where it trains on one."""
        return self.weights + self.optimizer + self.activations + self.logits

    def text(self) -> str:
        """The parts in GiB, without the program."""
        parts = {name: size for name, size in vars(self).items() if name != "program"}
        return ", ".join(f"{name} {size / GIB:.1f}" for name, size in parts.items())


def learner_needs(recipe: Rl, config: ModelConfig, dtype: str) -> Needs:
    """Memory of one rank. dtype: "fp32" or "bf16"."""
    train, size = recipe.train, BYTES[dtype]
    every, layer, ranks = weights_of(config), layer_weights(config), train.ranks
    whole = max(2 * layer, every - config.num_hidden_layers * layer) if ranks > 1 else 0
    tokens = max(train.batch_tokens, recipe.rollouts.context_length)
    one = 12 * config.hidden_size + 4 * config.key_width + 4 * config.intermediate_size
    kept = config.num_hidden_layers * (config.hidden_size if train.activation_checkpointing else one)
    kept += one * train.activation_checkpointing
    return Needs(
        weights=(every * (2 if recipe.method.kl else 1) / ranks + whole) * size,
        optimizer=3 * every / ranks * size,
        activations=tokens * kept * size,
        logits=min(tokens * config.vocab_size, LOGITS) * (20 if recipe.method.entropy else 16),
        program=PROGRAM,
    )


def engine_needs(recipe: Rl, config: ModelConfig) -> float:
    """Bytes of one model server: of its process on a CPU, in fp32, or of each of its GPUs, in bf16.

    On a GPU without `rollouts.max_total_tokens` the cache takes what is left, and is not counted.
    """
    asked, gpus = recipe.rollouts, recipe.job.gpus // recipe.job.servers
    size = BYTES["bf16" if gpus else "fp32"]
    cache = asked.max_total_tokens or (0 if gpus else max(CPU_CACHE, asked.context_length))
    held = cache * 2 * config.num_hidden_layers * config.key_width
    return (weights_of(config) + held) * size / max(1, gpus) + ENGINE
