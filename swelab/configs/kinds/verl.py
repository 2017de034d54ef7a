"""Keys of an RL recipe that only the cluster engine verl reads. Except for `mode` and `resume_from`, these
keys affect a result by rounding at most."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from swelab.configs.recipe_model import OrAbsent, Recipe

if TYPE_CHECKING:
    from swelab.configs.kinds.rl import Rl


class VerlTrainer(Recipe):
    """The GPUs that train, and how the model is distributed over them."""

    nodes: int = Field(1, ge=1, description="number of nodes that train")
    backend: Literal["fsdp2", "megatron"] = Field("fsdp2", description="library that shards the model")
    tensor_parallel: int = Field(
        1, ge=1, description="for megatron: number of GPUs that share each weight matrix"
    )
    context_parallel: int = Field(
        1, ge=1, description="for megatron: number of GPUs that share the tokens of a sequence"
    )
    sequence_parallel: int = Field(
        1, ge=1, description="for fsdp2: number of GPUs that share the tokens of a sequence (Ulysses)"
    )
    offload: Literal["none", "optimizer", "all"] = Field(
        "none",
        description="what is offloaded to main memory: nothing; the optimizer's moments (megatron also "
        "updates them there); or also the weights while they are not in use",
    )

    @property
    def shared(self) -> int:
        """Number of GPUs that share the tokens of a sequence."""
        return self.context_parallel if self.backend == "megatron" else self.sequence_parallel


class VerlRollout(Recipe):
    """The GPUs that serve the policy."""

    nodes: int = Field(
        0, ge=0, description="number of nodes that only serve the policy; 0 if the training nodes serve it"
    )
    tensor_parallel: int = Field(1, ge=1, description="number of GPUs per engine")
    memory: float = Field(
        0.5, gt=0, lt=1, description="share of a GPU's memory that the engine uses for weights and cache"
    )
    loops: int = Field(8, ge=1, description="number of processes that run rollouts")


class VerlJudge(Recipe):
    """The GPUs that serve the judge, the policy that scores single steps."""

    nodes: int = Field(1, ge=1, description="number of nodes that only serve the judge")
    tensor_parallel: int = Field(1, ge=1, description="number of GPUs per engine of the judge")
    memory: float = Field(0.5, gt=0, lt=1, description="share of a GPU's memory that the judge's engine uses")


class Verl(Recipe):
    """The settings of the engine verl. The engine `embedded` ignores these settings."""

    mode: Literal["sync", "separate_async"] = Field(
        "sync",
        description="whether the same GPUs train and serve in turn (rollouts.ahead is 0), or some GPUs train "
        "while others serve (rollouts.ahead is at least 1)",
    )
    gpus: int = Field(
        8, ge=1, description="number of GPUs per node; with train.device cpu, number of processes per node"
    )
    gpu_gib: int = Field(
        80, ge=1, description="memory of a GPU in GiB, which preflight uses for its estimate"
    )
    trainer: VerlTrainer = VerlTrainer()
    rollout: VerlRollout = VerlRollout()
    judge: OrAbsent[VerlJudge] = Field(
        None, description="where the judge is served; if absent, the endpoint of the judge's policy is used"
    )
    transfer: Literal["nccl", "nixl"] = Field(
        "nccl", description="for separate_async: how new weights are sent to the GPUs that serve"
    )
    prompt_tokens: int = Field(
        0,
        ge=0,
        description="number of tokens of rollouts.context_length that are reserved for the first messages; 0 "
        "for a quarter",
    )
    save: int = Field(
        1, ge=1, description="number of steps between two checkpoints; the last step is always saved"
    )
    resume_from: str = Field(
        "",
        description="folder global_step_N of another run from which this run continues, with its optimizer; "
        "if empty, the run continues from its own newest checkpoint, or starts",
    )

    @property
    def serving_nodes(self) -> int:
        """Number of nodes that serve the policy."""
        return self.rollout.nodes or self.trainer.nodes

    @property
    def nodes(self) -> int:
        """Total number of nodes: nodes that train, nodes that only serve, and nodes of the judge."""
        return self.trainer.nodes + self.rollout.nodes + (self.judge.nodes if self.judge else 0)


def faults(recipe: "Rl") -> Iterator[str]:
    """Yields the reasons why verl cannot run a recipe, one line each: unsuitable sizes, modes and conflicting
    keys."""
    yield from _parallel(recipe.cluster)
    yield from _mode(recipe)
    yield from _tokens(recipe)
    yield from _job(recipe)
    train, mismatch = recipe.train, recipe.method.mismatch
    if recipe.rollouts.prompts % train.minibatches:
        what = f"train.minibatches {train.minibatches}, but rollouts.prompts {recipe.rollouts.prompts}"
        yield f"{what}, no multiple of it: verl makes optimizer steps of whole groups"
    if mismatch.level == "sequence" and mismatch.truncate is not None:
        yield (
            "method.mismatch.truncate with level sequence: verl weighs by the product of a sequence's "
            "ratios, not by their mean; set level token, or mask_below and mask_above"
        )
    if recipe.method.refill:
        what = f"method.refill {recipe.method.refill}: verl takes further tasks without a bound, and not in"
        yield f"{what} place of a group that the recipe drops; leave refill out, or ask for more prompts"
    if recipe.cluster.trainer.backend == "megatron" and (train.dtype == "fp32" or train.device == "cpu"):
        yield "verl.trainer.backend megatron trains in bf16 on GPUs alone: set backend fsdp2"
    if train.ranks > 1:
        yield f"train.ranks {train.ranks}: verl trains on verl.trainer.nodes x verl.gpus; leave ranks out"


def _parallel(verl: Verl) -> Iterator[str]:
    """Yields the reasons why the numbers of GPUs and nodes do not fit together."""
    trainer, rollout, here = verl.trainer, verl.rollout, verl.trainer.nodes * verl.gpus
    right, other = "fsdp2", ["sequence_parallel"]
    if trainer.backend == "fsdp2":
        right, other = "megatron", ["tensor_parallel", "context_parallel"]
    for name in other:
        if (size := getattr(trainer, name)) > 1:
            yield f"verl.trainer.{name} {size} with backend {trainer.backend}: set backend {right}"
    each = trainer.tensor_parallel * trainer.shared
    if here % each:
        yield f"verl.trainer: {here} GPUs train, no multiple of {each} that share a model or a sequence"
    yield from _engines("rollout", rollout.tensor_parallel, verl.serving_nodes, verl.gpus)
    if verl.judge:
        yield from _engines("judge", verl.judge.tensor_parallel, verl.judge.nodes, verl.gpus)


def _engines(name: str, tensor_parallel: int, nodes: int, gpus: int) -> Iterator[str]:
    several = tensor_parallel % gpus == 0 and nodes * gpus % tensor_parallel == 0
    if gpus % tensor_parallel and not several:
        what = f"verl.{name}.tensor_parallel {tensor_parallel}, but {nodes} nodes of {gpus} GPUs"
        yield f"{what}: an engine takes a divisor of a node's GPUs, or whole nodes"


def _mode(recipe: "Rl") -> Iterator[str]:
    verl, rollouts = recipe.cluster, recipe.rollouts
    if verl.mode == "sync":
        if verl.rollout.nodes:
            yield f"verl.rollout.nodes {verl.rollout.nodes} with mode sync: set 0, or mode separate_async"
        if rollouts.ahead:
            yield f"rollouts.ahead {rollouts.ahead} with verl.mode sync: set 0, or mode separate_async"
        return
    if not verl.rollout.nodes:
        yield "verl.mode separate_async without verl.rollout.nodes: name the nodes that serve the policy"
    if not rollouts.ahead:
        yield "rollouts.ahead 0 with verl.mode separate_async: rollouts are at least one step ahead there"
    if rollouts.update != "in_turns":
        yield "rollouts.update between_turns with verl.mode separate_async: it interrupts turns; set in_turns"


def _tokens(recipe: "Rl") -> Iterator[str]:
    """Yields the reasons why the longest sequence does not fit into a pass, or why the first messages are too
    long."""
    verl, context, most = recipe.cluster, recipe.rollouts.context_length, recipe.train.batch_tokens
    if most * verl.trainer.shared < context:
        name = "context_parallel" if verl.trainer.backend == "megatron" else "sequence_parallel"
        what = f"train.batch_tokens {most} x verl.trainer.{name} {verl.trainer.shared}"
        yield f"{what} is less than rollouts.context_length {context}: the longest sequence fits no pass"
    if verl.prompt_tokens >= context:
        yield f"verl.prompt_tokens {verl.prompt_tokens} leave no room in rollouts.context_length {context}"


def _job(recipe: "Rl") -> Iterator[str]:
    """Yields conflicts between the resources that the job requests and the resources that verl uses."""
    verl, job = recipe.cluster, recipe.job
    if verl.judge and not recipe.judge:
        yield "verl.judge without a judge"
    if recipe.train.device == "cuda" and (job.nodes, job.gpus) != (verl.nodes, verl.gpus):
        what = f"job asks for {job.nodes} nodes of {job.gpus} GPUs"
        yield f"{what}, but verl takes {verl.nodes} of {verl.gpus}: write job.nodes and job.gpus so"
    if recipe.train.device == "cpu" and job.nodes not in (1, verl.nodes):
        yield f"job.nodes {job.nodes}, but verl takes {verl.nodes}: write that, or 1"
