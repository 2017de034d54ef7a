"""Recipe of reinforcement learning: how a policy is trained on the results of its own attempts."""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from swelab.configs.kinds.policy import Job
from swelab.configs.kinds.verl import Verl, faults
from swelab.configs.recipe_model import Distinct, OrAbsent, Recipe
from swelab.outcomes import EVIDENCE, LISTS

if TYPE_CHECKING:
    End = str
    Evidence = str
else:
    End = Literal[tuple(map(str, LISTS["ENDS"]))]
    Evidence = Literal[tuple(map(str, EVIDENCE))]
Ends = Distinct[Annotated[End, Field(json_schema_extra={"$comment": "swelab.outcomes ENDS"})]]


class Rollouts(Recipe):
    """How the policy attempts the tasks of a training step."""

    prompts: int = Field(8, ge=1, description="tasks of a step; the rollouts of one task are a group")
    samples: int = Field(8, ge=2, description="rollouts of each task")
    at_once: int = Field(16, ge=1, description="rollouts that run at the same time")
    ahead: int = Field(
        0,
        ge=0,
        description="steps whose rollouts may begin before the weights of the step before them are there; 0 "
        "waits for the newest weights",
    )
    update: Literal["between_turns", "in_turns"] = Field(
        "between_turns",
        description="when servers take new weights: after the turns that run, or at once, and these turns "
        "go on with them; each token knows its weights",
    )
    temperature: float = Field(1.0, gt=0, description="of sampling; the trainer divides by it too")
    top_p: float = Field(
        1.0, gt=0, le=1, description="nucleus; kept log-probabilities are those before it is applied"
    )
    max_tokens: int = Field(1024, ge=1, description="tokens of one turn")
    context_length: int = Field(32768, ge=1, description="tokens of a conversation")
    max_total_tokens: int = Field(
        0, ge=0, description="tokens in a server's cache; 0 is as many as the engine likes"
    )
    shuffled: bool = Field(
        True, description="each epoch in an order of its own; false keeps the order of the subset"
    )
    history: Literal["whole", "managed"] = Field(
        "whole",
        description="what the policy is shown of a long conversation: all of it, or its first and last "
        "turns with a line for the others",
    )
    thinking: OrAbsent[bool] = Field(
        None,
        description="what the chat template is told by `enable_thinking`: false asks for turns without "
        "thoughts; absent tells it nothing",
    )
    keep: Literal["all", "first", "none"] = Field(
        "all", description="rollouts that are written as folders: all, the first of each group, or none"
    )
    head_share: float = Field(
        0.3, ge=0, le=1, description="managed: share of the room that the first turns get"
    )

    @property
    def sampling(self) -> dict[str, float]:
        """The sampling settings of an engine for one turn."""
        return {"temperature": self.temperature, "top_p": self.top_p, "max_tokens": self.max_tokens}


class Failures(Recipe):
    """How training treats rollouts, depending on how they ended. docs/scores.md lists the ways to end. Tokens
    of rollouts lost to infrastructure are always masked, and their rewards are never in the baseline."""

    mask: Ends = Field([], description="its tokens are not trained")
    leave_baseline: Ends = Field([], description="its reward enters no mean and no deviation of its group")
    drop_group: Ends = Field([], description="its whole group is not trained")


class Mismatch(Recipe):
    """Correction for sampled tokens whose probabilities differ between trainer and engine. The ratio is
    trainer / engine."""

    level: Literal["token", "sequence"] = Field(
        "token", description="a ratio for each token, or the geometric mean of a sequence"
    )
    truncate: Annotated[float, Field(gt=0)] | None = Field(
        None, description="the loss is weighed by the ratio, at most this; null weighs by 1"
    )
    mask_below: Annotated[float, Field(ge=0)] | None = Field(
        None, description="not trained where the ratio is below; null is no bound"
    )
    mask_above: Annotated[float, Field(gt=0)] | None = Field(
        None, description="not trained where the ratio is above; null is no bound"
    )


class Method(Recipe):
    """How rewards are converted to a loss."""

    reward: Literal["solved", "signed", "share_of_tests"] = Field(
        "solved",
        description="1 or 0 for a resolved task; 1 or -1; the share of its tests that are as they must be",
    )
    evidence: Annotated[Evidence, Field(json_schema_extra={"$comment": "swelab.outcomes EVIDENCE"})] = Field(
        "resolved",
        description="which tasks count as resolved: all of them, or those that the witness confirms "
        "(docs/grading.md); another one gets the lowest reward",
    )
    advantage: Literal["grpo", "grpo-unscaled", "leave-one-out", "length-weighted", "step-wise"] = Field(
        "grpo-unscaled",
        description="reward less the group's mean, divided by its deviation or not; less the mean of the "
        "others; less the mean reward of a token; or for each step, from the outcome and the judge's score",
    )
    loss: Literal["clipped", "gspo", "cispo"] = Field("clipped", description="of a token")
    clip_low: float = Field(0.2, ge=0, lt=1, description="the ratio of probabilities is at least 1 - this")
    clip_high: float = Field(0.28, ge=0, description="and at most 1 + this")
    dual_clip: Annotated[float, Field(gt=1)] | None = Field(
        None, description="a bad token costs at most this times its advantage; null is no bound"
    )
    aggregation: Literal[
        "token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean"
    ] = Field("token-mean", description="how the tokens of a batch are put together")
    horizon: int = Field(0, ge=0, description="seq-mean-token-sum-norm: tokens that a sum is divided by")
    sequences: Literal["whole", "step"] = Field(
        "whole", description="a training sequence for as long as the history only grows, or one for each turn"
    )
    weigh: Literal["rollout", "sequence"] = Field(
        "rollout", description="what counts once in a mean over sequences, however a rollout was split"
    )
    kl: float = Field(0.0, ge=0, description="coefficient of the divergence from the start")
    entropy: float = Field(0.0, ge=0, description="coefficient of the entropy, which is rewarded")
    keep_constant: bool = Field(
        False, description="train groups whose rewards are all the same; their advantages are 0"
    )
    refill: int = Field(
        0, ge=0, description="further tasks of a step at most, in place of groups that are not trained"
    )
    failures: Failures = Failures()
    mismatch: Mismatch = Mismatch()

    @property
    def per_step(self) -> bool:
        """Whether each turn is a separate training sequence."""
        return self.sequences == "step"


class Train(Recipe):
    """The settings of the learner, which trains the weights."""

    steps: int = Field(ge=1, description="batches; each ends with new weights in the servers")
    lr: float = Field(1e-6, gt=0, description="learning rate of AdamW, constant after the warm-up")
    warmup_steps: int = Field(0, ge=0, description="steps in which it rises")
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field(
        [0.9, 0.98], min_length=2, max_length=2, description="AdamW's moment decays"
    )
    weight_decay: float = Field(0.1, ge=0, description="of AdamW, on matrices")
    max_grad_norm: float = Field(1.0, gt=0, description="largest gradient norm")
    minibatches: int = Field(1, ge=1, description="optimizer steps a batch")
    batch_tokens: int = Field(
        16384, ge=1, description="tokens of a forward pass with their padding; a longer sequence goes alone"
    )
    dtype: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="of weights and optimizer; auto is bf16 on a GPU, fp32 on a CPU"
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where it trains")
    ranks: int = Field(
        1,
        ge=1,
        description="processes that share weights and batches: a GPU each, or `threads` CPUs; the result "
        "differs by rounding",
    )
    threads: int = Field(
        2, ge=1, description="CPU threads of each rank; part of the result, as sums depend on their order"
    )
    activation_checkpointing: bool = Field(False, description="recompute activations: less memory, more time")
    keep_checkpoints: int = Field(2, ge=2, description="how many of the newest stay")
    seed: int = Field(0, ge=0, description="of the order of tasks")


class Validation(Recipe):
    """Held-out tasks that are attempted during a training to measure progress."""

    subset: str = Field(min_length=1, description="a subset that shares no task with the one trained on")
    every: int = Field(
        5, ge=1, description="steps between two validations; the start and the end have one too"
    )
    limit: int = Field(0, ge=0, description="how many tasks, the first ones of the subset; 0 is all")
    temperature: float = Field(0.0, ge=0, description="of sampling; 0 takes the likeliest token")


class Judge(Recipe):
    """The judge that scores the single steps of rollouts."""

    policy: str = Field(min_length=1, description="the policy that judges, served or hosted")
    votes: int = Field(3, ge=1, description="answers for each step; its score is their mean")
    coefficient: float = Field(
        1.0, description="of the mean score of a rollout's steps, or of each step's, beside the outcome"
    )
    at_once: int = Field(8, ge=1, description="questions that are asked at the same time")


class Rl(Recipe):
    """How a policy is trained on the results of its own attempts."""

    start: str = Field(
        min_length=1, description="weights that it starts from: sft:<recipe>, model:<recipe> or a folder"
    )
    subset: str = Field(min_length=1, description="the subset whose tasks it attempts")
    scaffold: str = Field(min_length=1, description="the scaffold recipe, as for a policy")
    rollouts: Rollouts = Rollouts()
    method: Method = Method()
    train: Train
    judge: OrAbsent[Judge] = Field(None, description="scores of single steps; none without")
    validation: OrAbsent[Validation] = Field(None, description="how progress is measured; none without")
    wandb: str = Field("", description="project at Weights & Biases that is told each step; empty is none")
    listen: str = Field(
        "127.0.0.1",
        min_length=1,
        description="address at which the policy's servers are asked: executor ray on hosts wants one "
        "of this machine's that they all reach",
    )
    job: Job = Field(Job(), description="what it asks a cluster for, and how many servers answer the policy")
    engine: Literal["embedded", "verl"] = Field(
        "embedded",
        description="what trains: the learner of this program on one machine, or verl on the nodes of a "
        "cluster (docs/rl-scale.md)",
    )
    verl: OrAbsent[Verl] = Field(None, description="what engine verl is told; no other engine looks at it")

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        """Raises an error for conflicting keys, before anything is paid for the start weights or the
        tasks."""
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
            "method.advantage step-wise without a judge": method.advantage == "step-wise" and not self.judge,
            f"validation.subset {self.subset} is the subset that is trained on": self.subset in self.held_out,
        }
        found = [what for what, holds in wrong.items() if holds]
        for what in found or (faults(self) if self.engine == "verl" else ()):
            raise PydanticCustomError("rl", "{what}", {"what": what})
        return self

    @property
    def cluster(self) -> Verl:
        """The settings of the engine verl. Defaults if the recipe has no key `verl`."""
        return self.verl or Verl()

    @property
    def coefficient(self) -> float:
        """The weight of the judge's scores relative to the outcome. 0 without a judge."""
        return self.judge.coefficient if self.judge else 0.0

    @property
    def judges(self) -> list[str]:
        """A list with the policy that judges steps. Empty without a judge."""
        return [self.judge.policy] if self.judge else []

    @property
    def held_out(self) -> list[str]:
        """A list with the subset used for validation. Empty without validation."""
        return [self.validation.subset] if self.validation else []
