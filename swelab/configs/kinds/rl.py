"""Recipe of reinforcement learning: how a policy is trained on the results of its own attempts."""

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from swelab.choices import ADVANTAGES, meanings
from swelab.configs.kinds.policy import Job
from swelab.configs.kinds.rollout_settings import Rollouts
from swelab.configs.kinds.verl import Verl, faults
from swelab.configs.recipe_model import Distinct, OneOf, OrAbsent, Recipe
from swelab.outcomes import EVIDENCE, LISTS

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
    temperature: float = Field(0.0, ge=0, description="sampling temperature; 0 takes the most likely token")


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
