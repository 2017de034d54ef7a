"""How much memory and disk a training on verl needs, estimated from the model's shape and the recipe.

With P weights, R GPUs that train, T of them that share each matrix (megatron), L tokens a pass of a GPU:

    fsdp2       weights 4 P / R in fp32, two layers or the embedding whole in bf16; gradients 4 P / R, moments
                8 P / R
    megatron    weights 2 P / T, gradients 4 P / T; weights in fp32 and moments 12 P / R, in main memory with
                `offload: optimizer`
    reference   the weights in bf16 once more, where a divergence from the start is trained on
    activations 2 L / T x layers x width with activation checkpointing, and one layer's; else layers x one
                layer's, as in `swelab.rl.memory_needs`
    logits      8 L / T bytes for each token of the vocabulary
    engine      2 P / (GPUs of an engine), and for each token of its cache keys and values in bf16
    checkpoint  the weights, and 12 bytes a weight of the optimizer; with fsdp2 weights in fp32 and bf16

Nothing of it was measured on a GPU.
"""

from dataclasses import dataclass

from swelab.configs.kinds.rl import Rl
from swelab.files.model_config import ModelConfig
from swelab.machine import GIB
from swelab.rl.memory_needs import ENGINE
from swelab.sft.train.memory import layer_weights, weights_of


@dataclass(frozen=True)
class TrainerNeeds:
    """Bytes of one GPU that trains, and of the main memory of its node."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    logits: float
    host: float

    @property
    def total(self) -> float:
        """On the GPU, all together."""
        return self.kept + self.activations + self.logits

    @property
    def kept(self) -> float:
        """What stays on the GPU between two passes where nothing is offloaded."""
        return self.weights + self.gradients + self.optimizer

    def text(self) -> str:
        """The parts on the GPU in GiB."""
        parts = ("weights", "gradients", "optimizer", "activations", "logits")
        return ", ".join(f"{name} {getattr(self, name) / GIB:.1f}" for name in parts)


def trainer_needs(recipe: Rl, config: ModelConfig) -> TrainerNeeds:
    """Memory of one GPU that trains."""
    trainer, train = recipe.cluster.trainer, recipe.train
    every, layer = weights_of(config), layer_weights(config)
    ranks, split = trainer.nodes * recipe.cluster.gpus, trainer.tensor_parallel
    one = 12 * config.hidden_size + 4 * config.key_width + 4 * config.intermediate_size
    kept = config.num_hidden_layers * (config.hidden_size if train.activation_checkpointing else one)
    kept += one * train.activation_checkpointing
    tokens = train.batch_tokens / split
    reference = 2 * every / (split if trainer.backend == "megatron" else ranks) * bool(recipe.method.kl)
    if trainer.backend == "megatron":
        on_cpu = trainer.offload == "optimizer"
        weights, gradients, moments = 2 * every / split, 4 * every / split, 12 * every / ranks
    else:
        on_cpu, moments = False, 8 * every / ranks
        whole = max(2 * layer, every - config.num_hidden_layers * layer)
        weights, gradients = 4 * every / ranks + 2 * whole, 4 * every / ranks
    offloaded = {"none": 0.0, "optimizer": moments, "all": weights + moments}[trainer.offload]
    return TrainerNeeds(
        weights=weights + reference,
        gradients=gradients,
        optimizer=0.0 if on_cpu else moments,
        activations=2 * tokens * kept,
        logits=8 * tokens * config.vocab_size,
        host=offloaded * recipe.cluster.gpus,
    )


@dataclass(frozen=True)
class EngineRoom:
    """An engine of the policy: bytes of its weights on each of its GPUs, and tokens that its cache holds."""

    weights: float
    tokens: int
    count: int


def engine_room(recipe: Rl, config: ModelConfig) -> EngineRoom:
    """What the GPUs that serve hold; tokens is below 0 where not even the weights fit. count: of engines."""
    verl, each = recipe.cluster, recipe.cluster.rollout.tensor_parallel
    weights = 2 * weights_of(config) / each
    left = verl.rollout.memory * verl.gpu_gib * GIB - weights - ENGINE
    a_token = 2 * 2 * config.num_hidden_layers * config.key_width / each
    most = recipe.rollouts.max_total_tokens
    tokens = int(left / a_token)
    return EngineRoom(weights, min(tokens, most) if most else tokens, verl.serving_nodes * verl.gpus // each)


def checkpoint_bytes(recipe: Rl, config: ModelConfig) -> float:
    """Size of one checkpoint on disk."""
    every, fsdp = weights_of(config), recipe.cluster.trainer.backend == "fsdp2"
    return every * (4 + 8 + 2 if fsdp else 2 + 12)
