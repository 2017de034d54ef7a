"""Estimates the memory and disk that an RL training run needs, by the formulas of `swelab.checks.memory`.

P is the number of weights. L is the larger of `train.batch_tokens` and `rollouts.context_length`, because a
sequence longer than `batch_tokens` is a batch by itself. Each logit of a trained token takes 16 bytes, or 20
if entropy is rewarded. At most `LOGITS` logits are held at a time. In bf16 the optimizer steps on weights in
fp32. The engine holds another copy of the weights, and a cache with the keys and values of each token in each
layer.

The learner's estimate for a CPU in fp32 was fitted to five measured peaks. This estimate is 0.95 to 1.12
times the measured peak. The peaks are from passes of 512 and 4096 tokens, with and without activation
checkpointing, divergence and entropy. `benchmarks.memory` requires a factor of at most 1.5. GPUs and the
engine were not measured.

On verl, R GPUs train, and T of them share each matrix (megatron). A pass has `train.batch_tokens` / T tokens,
in bf16. Bytes on each GPU, and of a checkpoint on disk:

    fsdp2       weights 4 P / R in fp32, and two layers or the embedding whole in bf16;
                gradients 4 P / R, moments 8 P / R
    megatron    weights 2 P / T, gradients 4 P / T; weights in fp32 and moments 12 P / R, in main memory with
                `offload: optimizer`
    reference   another copy of the weights in bf16, if the divergence from the start is in the loss
    logits      8 bytes each
    checkpoint  the weights, and 12 bytes per weight of the optimizer; with fsdp2 weights in fp32 and bf16

None of the numbers for verl was measured on a GPU.
"""

from dataclasses import dataclass

from swelab.checks.memory import BYTES, Memory, activations, estimate, whole_weights
from swelab.configs.kinds.rl import Rl
from swelab.files.model_config import ModelConfig
from swelab.machine import GIB
from swelab.models.serving.engine import CPU_CACHE

LOGITS = 1 << 27
"""Maximum number of logits that a learner holds at a time. For larger batches, the backward pass recomputes
logits."""
PROGRAM, ENGINE = 0.45 * GIB, 1.5 * GIB
"""Memory of a program in bytes. PROGRAM: Python with torch and transformers. ENGINE: a model server without
weights and cache."""
WIDTHS = (12, 4, 4)
"""Widths of one layer's activations in transformers; see `swelab.checks.memory`."""


def learner_needs(recipe: Rl, config: ModelConfig, dtype: str) -> Memory:
    """Returns the memory that one rank needs, not counting Python and its libraries. dtype: "fp32" or
    "bf16"."""
    train = recipe.train
    tokens = max(train.batch_tokens, recipe.rollouts.context_length)
    return estimate(
        config,
        BYTES[dtype],
        tokens,
        min(tokens * config.vocab_size, LOGITS) * (20 if recipe.method.entropy else 16),
        widths=WIDTHS,
        ranks=train.ranks,
        copies=2 if recipe.method.kl else 1,
        checkpointing=train.activation_checkpointing,
        masters=dtype == "bf16",
    )


def engine_needs(recipe: Rl, config: ModelConfig) -> float:
    """Returns the bytes that one model server needs: in its process on a CPU (fp32), or on each of its GPUs
    (bf16).

    On a GPU without `rollouts.max_total_tokens`, the cache takes all remaining memory, and is not counted.
    """
    rollouts, gpus = recipe.rollouts, recipe.job.gpus // recipe.job.servers
    size = BYTES["bf16" if gpus else "fp32"]
    tokens = rollouts.max_total_tokens or (0 if gpus else max(CPU_CACHE, rollouts.context_length))
    return (config.weights + tokens * cache_width(config)) * size / max(1, gpus) + ENGINE


def cache_width(config: ModelConfig) -> int:
    """Returns how many numbers an engine's cache holds for each token: keys and values of all layers."""
    return 2 * config.num_hidden_layers * config.key_width


@dataclass(frozen=True)
class TrainerMemory(Memory):
    """Memory of one GPU that trains on verl. host: bytes of main memory for all GPUs of a node."""

    host: float = 0.0


def trainer_needs(recipe: Rl, config: ModelConfig) -> TrainerMemory:
    """Estimates the memory of one GPU that trains on verl."""
    trainer, every = recipe.cluster.trainer, config.weights
    ranks, split = trainer.nodes * recipe.cluster.gpus, trainer.tensor_parallel
    tokens = recipe.train.batch_tokens / split
    if megatron := trainer.backend == "megatron":
        weights, gradients, moments = 2 * every / split, 4 * every / split, 12 * every / ranks
    else:
        gradients, moments = 4 * every / ranks, 8 * every / ranks
        weights = gradients + 2 * whole_weights(config)
    on_host = {"none": 0.0, "optimizer": moments, "all": weights + moments}[trainer.offload]
    return TrainerMemory(
        weights=weights + 2 * every / (split if megatron else ranks) * bool(recipe.method.kl),
        gradients=gradients,
        optimizer=0.0 if megatron and trainer.offload == "optimizer" else moments,
        activations=2 * tokens * sum(activations(config, WIDTHS, recipe.train.activation_checkpointing)),
        logits=8 * tokens * config.vocab_size,
        host=on_host * recipe.cluster.gpus,
    )


@dataclass(frozen=True)
class EngineRoom:
    """Capacity of the engines. weights: bytes of weights on each GPU. tokens: number of tokens in an engine's
    cache. count: number of engines."""

    weights: float
    tokens: int
    count: int


def engine_room(recipe: Rl, config: ModelConfig) -> EngineRoom:
    """Estimates the capacity of the serving GPUs. `tokens` of the result is negative if the weights alone do
    not fit."""
    verl, gpus = recipe.cluster, recipe.cluster.rollout.tensor_parallel
    weights = 2 * config.weights / gpus
    free = verl.rollout.memory * verl.gpu_gib * GIB - weights - ENGINE
    tokens = int(free / (2 * cache_width(config) / gpus))
    most = recipe.rollouts.max_total_tokens or tokens
    return EngineRoom(weights, min(tokens, most), verl.serving_nodes * verl.gpus // gpus)


def checkpoint_bytes(recipe: Rl, config: ModelConfig) -> float:
    """Returns the size of one checkpoint on disk."""
    return config.weights * (4 + 8 + 2 if recipe.cluster.trainer.backend == "fsdp2" else 2 + 12)
