"""Recipe of reinforcement learning: how a policy is trained on the results of its own attempts."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from swelab.choices import ADVANTAGES, meanings
from swelab.configs.kinds.policy import Job
from swelab.configs.kinds.sampling import Effort, Stops, TopK, check_learned, setting
from swelab.configs.recipe_model import Distinct, OneOf, OrAbsent, Recipe
from swelab.outcomes import EVIDENCE, LISTS
from swelab.records import Record
from swelab.sampling_settings import BEFORE, SETTINGS


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


class Rollouts(Recipe):
    """How the policy attempts the tasks of a training step."""

    prompts: int = Field(
        8, ge=1, description="number of tasks per step; the rollouts of one task are a group"
    )
    samples: int = Field(8, ge=2, description="number of rollouts per task")
    at_once: int = Field(16, ge=1, description="number of rollouts that run at the same time")
    ahead: int = Field(
        0,
        ge=0,
        description="number of steps whose rollouts may start before the preceding step has updated the "
        "weights; 0 waits for the newest weights",
    )
    update: Literal["between_turns", "in_turns"] = Field(
        "between_turns",
        description="when servers load new weights: after the running turns, or at once, so that running "
        "turns continue with them; each token records the version of its weights",
    )
    temperature: float = setting("temperature", 1.0, "the trainer divides logits by it too", gt=0, le=100)
    top_p: float = setting("top_p", also=BEFORE)
    top_k: OrAbsent[TopK] = setting("top_k", also=BEFORE)
    min_p: OrAbsent[float] = setting("min_p", also=BEFORE)
    stop: OrAbsent[Stops] = setting("stop")
    max_tokens: int = setting("max_tokens")
    context_length: int = Field(32768, ge=1, description="maximum number of tokens of a conversation")
    max_total_tokens: int = Field(
        0, ge=0, description="number of tokens in a server's cache; 0 lets the engine decide"
    )
    shuffled: bool = Field(
        True,
        description="whether each epoch has its own random order; if false, tasks keep the order of the "
        "subset",
    )
    history: Literal["whole", "managed"] = Field(
        "whole",
        description="what the policy sees of a long conversation: all of it, or its first and last turns "
        "with one line in place of the others",
    )
    thinking: OrAbsent[bool] = setting("thinking")
    reasoning_effort: OrAbsent[Effort] = setting("reasoning_effort")
    keep: Literal["all", "first", "none"] = Field(
        "all", description="rollouts that are written as folders: all, the first of each group, or none"
    )
    head_share: float = Field(
        0.3, ge=0, le=1, description="for `managed`: share of the context that the first turns get"
    )

    @model_validator(mode="before")
    @classmethod
    def _refuse_unlearned(cls, given: Any) -> Any:
        return check_learned(given)

    @property
    def sampling(self) -> Record:
        """The sampling settings of an engine for one turn."""
        plain = self.plain()
        return {name: plain[name] for name, each in SETTINGS.items() if each.generate and name in plain}


if TYPE_CHECKING:
    End = str
    Evidence = str
else:
    End = Literal[tuple(map(str, LISTS["ENDS"]))]
    Evidence = Literal[tuple(map(str, EVIDENCE))]
Ends = Distinct[Annotated[End, Field(json_schema_extra={"$comment": "swelab.outcomes ENDS"})]]


class Failures(Recipe):
    """How training treats rollouts, depending on how they ended. docs/scores.md lists the ways to end. Tokens
    of rollouts lost to infrastructure are always masked, and their rewards are never in the baseline."""

    mask: Ends = Field([], description="exclude the rollout's tokens from the loss")
    leave_baseline: Ends = Field(
        [], description="exclude the reward from the mean and the deviation of the group"
    )
    drop_group: Ends = Field([], description="exclude the whole group from training")


class Mismatch(Recipe):
    """Correction for sampled tokens whose probabilities differ between trainer and engine. The ratio is
    trainer / engine."""

    level: Literal["token", "sequence"] = Field(
        "token", description="one ratio per token, or the geometric mean over a sequence"
    )
    truncate: Annotated[float, Field(gt=0)] | None = Field(
        None, description="maximum of the ratio as a weight of the loss; null for no weights"
    )
    mask_below: Annotated[float, Field(ge=0)] | None = Field(
        None, description="tokens with a smaller ratio are not trained; null for no bound"
    )
    mask_above: Annotated[float, Field(gt=0)] | None = Field(
        None, description="tokens with a larger ratio are not trained; null for no bound"
    )


class Method(Recipe):
    """How rewards are converted to a loss."""

    reward: Literal["solved", "signed", "share_of_tests"] = Field(
        "solved",
        description="reward of an attempt: 1 or 0 for resolved or not; 1 or -1; or the share of the task's "
        "tests with the expected result",
    )
    evidence: Annotated[Evidence, Field(json_schema_extra={"$comment": "swelab.outcomes EVIDENCE"})] = Field(
        "resolved",
        description="attempts that count as resolved: all resolved ones, or only those that the witness "
        "confirms (docs/grading.md); others get the lowest reward",
    )
    advantage: Annotated[str, OneOf(ADVANTAGES)] = Field("grpo-unscaled", description=meanings(ADVANTAGES))
    loss: Literal["clipped", "gspo", "cispo"] = Field("clipped", description="loss function of a token")
    clip_low: float = Field(
        0.2, ge=0, lt=1, description="lower bound of the ratio of probabilities: 1 - this value"
    )
    clip_high: float = Field(
        0.28, ge=0, description="upper bound of the ratio of probabilities: 1 + this value"
    )
    dual_clip: Annotated[float, Field(gt=1)] | None = Field(
        None,
        description="dual clip: maximum loss of a token with a negative advantage, in multiples of the "
        "advantage; null for no bound",
    )
    aggregation: Literal[
        "token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"
    ] = Field("token-mean", description="how the losses of a batch's tokens are aggregated")
    horizon: int = Field(
        0, ge=0, description="for seq-mean-token-sum-norm: number by which a sum over tokens is divided"
    )
    sequences: Literal["whole", "step"] = Field(
        "whole",
        description="whether a rollout is one training sequence while its history only grows, or one "
        "sequence per turn",
    )
    weigh: Literal["rollout", "sequence"] = Field(
        "rollout", description="unit of means over sequences, if a rollout is split into several sequences"
    )
    kl: float = Field(0.0, ge=0, description="coefficient of the KL divergence from the start weights")
    entropy: float = Field(0.0, ge=0, description="coefficient of the entropy bonus")
    keep_constant: bool = Field(
        False, description="whether groups with equal rewards are trained; their advantages are 0"
    )
    refill: int = Field(
        0,
        ge=0,
        description="maximum number of additional tasks in a step, in place of groups that are not trained",
    )
    failures: Failures = Failures()
    mismatch: Mismatch = Mismatch()

    @property
    def per_step(self) -> bool:
        """Whether each turn is a separate training sequence."""
        return self.sequences == "step"


class Train(Recipe):
    """The settings of the learner, which trains the weights."""

    steps: int = Field(
        ge=1,
        description="number of steps; each trains on one batch, and ends with new weights in the servers",
    )
    lr: float = Field(1e-6, gt=0, description="learning rate of AdamW; constant after the warm-up")
    warmup_steps: int = Field(
        0,
        ge=0,
        description="number of steps over which the learning rate grows; it is 0 in the first of them",
    )
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field(
        [0.9, 0.98], min_length=2, max_length=2, description="AdamW's moment decays"
    )
    weight_decay: float = Field(0.1, ge=0, description="weight decay of AdamW, applied to matrices")
    max_grad_norm: float = Field(1.0, gt=0, description="maximum norm of the gradient")
    minibatches: int = Field(1, ge=1, description="maximum number of optimizer steps per batch")
    batch_tokens: int = Field(
        16384,
        ge=1,
        description="maximum number of tokens of a forward pass, with padding; a longer sequence has a pass "
        "of its own",
    )
    dtype: Literal["auto", "fp32", "bf16"] = Field(
        "auto",
        description="data type of the computation and of the saved weights; auto is bf16 on a GPU, fp32 on a "
        "CPU; the optimizer steps on weights in fp32",
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="device of the training")
    ranks: int = Field(
        1,
        ge=1,
        description="number of processes that share weights and batches, each with a GPU or with `threads` "
        "CPUs; changes the result by rounding",
    )
    threads: int = Field(
        2,
        ge=1,
        description="number of CPU threads of each rank; it affects the result, because sums depend on their "
        "order",
    )
    activation_checkpointing: bool = Field(
        False, description="recompute activations: saves memory, takes more time"
    )
    keep_checkpoints: int = Field(
        2, ge=2, description="number of checkpoints that are kept; older ones are removed"
    )
    seed: int = Field(0, ge=0, description="seed of the order of tasks")


class Validation(Recipe):
    """Held-out tasks that are attempted during a training to measure progress."""

    subset: str = Field(min_length=1, description="subset that shares no task with the trained subset")
    every: int = Field(
        5,
        ge=1,
        description="number of steps between two validations; the start and the end are validated too",
    )
    limit: int = Field(0, ge=0, description="number of tasks, from the beginning of the subset; 0 for all")
    temperature: float = setting("temperature")


class Judge(Recipe):
    """The judge that scores the single steps of rollouts."""

    policy: str = Field(min_length=1, description="policy that judges; served or hosted")
    votes: int = Field(3, ge=1, description="number of answers per step; the step's score is their mean")
    coefficient: float = Field(
        1.0,
        description="weight of the judge's scores next to the outcome: of the mean score of a rollout's "
        "steps, or of each step's score",
    )
    at_once: int = Field(8, ge=1, description="number of requests to the judge at the same time")


class Rl(Recipe):
    """How a policy is trained on the results of its own attempts."""

    start: str = Field(min_length=1, description="start weights: sft:<recipe>, model:<recipe> or a folder")
    subset: str = Field(min_length=1, description="subset with the tasks of the training")
    scaffold: str = Field(min_length=1, description="name of the scaffold recipe, as for a policy")
    rollouts: Rollouts = Rollouts()
    method: Method = Method()
    train: Train
    judge: OrAbsent[Judge] = Field(None, description="judge that scores single steps; none if absent")
    validation: OrAbsent[Validation] = Field(
        None, description="how progress is measured; no validation if absent"
    )
    wandb: str = Field(
        "", description="Weights & Biases project that gets the metrics of each step; none if empty"
    )
    listen: str = Field(
        "127.0.0.1",
        min_length=1,
        description="address of the policy's servers; with executor ray, an address of this machine that all "
        "hosts can reach",
    )
    job: Job = Field(
        Job(),
        description="resources that the job requests from a cluster, and the number of servers of the policy",
    )
    engine: Literal["embedded", "verl"] = Field(
        "embedded",
        description="engine: embedded trains on one machine, verl on the nodes of a cluster "
        "(docs/rl-scale.md)",
    )
    verl: OrAbsent[Verl] = Field(None, description="settings of the engine verl; other engines ignore them")

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        """Raises an error for conflicting keys, before start weights or tasks are made at a cost."""
        asked, method, norm = self.rollouts, self.method, "seq-mean-token-sum-norm"
        context, attempts = f"context_length {asked.context_length}", asked.prompts * asked.samples
        wrong = {
            f"rollouts.max_tokens {asked.max_tokens} leaves no room in {context}": (
                asked.max_tokens >= asked.context_length
            ),
            f"train.minibatches {self.train.minibatches}, but {attempts} rollouts a step": (
                self.train.minibatches > attempts
            ),
            f"aggregation {norm} without method.horizon": method.aggregation == norm and not method.horizon,
            f"method.advantage {method.advantage} without a judge": ADVANTAGES[method.advantage].per_step
            and not self.judge,
            f"validation.subset {self.subset} is the subset that is trained on": self.subset in self.held_out,
        }
        found = [what for what, holds in wrong.items() if holds]
        for what in found or (faults(self) if self.engine == "verl" else ()):
            raise PydanticCustomError("rl", "{what}", {"what": what})
        return self

    @property
    def cluster(self) -> Verl:
        """The settings of the engine verl, or the defaults if the recipe has no key `verl`."""
        return self.verl or Verl()

    @property
    def coefficient(self) -> float:
        """The weight of the judge's scores relative to the outcome, or 0 without a judge."""
        return self.judge.coefficient if self.judge else 0.0

    @property
    def judges(self) -> list[str]:
        """A list with the name of the policy that judges steps, or [] without a judge."""
        return [self.judge.policy] if self.judge else []

    @property
    def held_out(self) -> list[str]:
        """A list with the name of the subset for validation, or [] without validation."""
        return [self.validation.subset] if self.validation else []
