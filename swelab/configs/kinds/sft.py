"""Recipe of fine-tuning: how resolved trajectories become a dataset, and how a base model is trained on
it."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from swelab.configs.recipe_model import Distinct, Recipe
from swelab.outcomes import EVIDENCE, TRAINABLE_ROLLOUTS

if TYPE_CHECKING:
    Trainable = str
    Evidence = str
else:
    Trainable = Literal[tuple(map(str, TRAINABLE_ROLLOUTS))]
    Evidence = Literal[tuple(map(str, EVIDENCE))]


class Source(Recipe):
    """Rollouts of one policy whose trajectories become training rows."""

    policy: str = Field(description="a policy")
    subsets: Distinct[str] = Field(min_length=1, description="train subsets")


class Selection(Recipe):
    """Which trajectories become training rows."""

    max_tokens: int = Field(32768, ge=1, description="longest conversation, in tokens of the base model")
    per_instance: int = Field(1, ge=1, description="trajectories kept of one instance")
    choice: Literal["shortest", "random"] = Field(
        "shortest", description="which of an instance's trajectories come first"
    )
    seed: int = Field(0, ge=0, description="of the random choice")
    outcomes: Distinct[
        Annotated[Trainable, Field(json_schema_extra={"$comment": "swelab.outcomes TRAINABLE_ROLLOUTS"})]
    ] = Field([], description="how a trajectory may have ended; empty is any way")
    evidence: Annotated[Evidence, Field(json_schema_extra={"$comment": "swelab.outcomes EVIDENCE"})] = Field(
        "resolved",
        description="which trajectories count as resolved: all of them, or those whose patch the witness "
        "confirms (docs/grading.md)",
    )
    unresolved: bool = Field(
        False,
        description="also trajectories that were judged and failed, as where nothing is filtered; forged ones"
        " never",
    )
    nonempty_patch: bool = Field(False, description="only with a patch")
    no_test_edits: bool = Field(
        False, description="only where the patch touches no file that by its name is a test"
    )
    malformed_turns: Literal["drop", "mask", "keep"] = Field(
        "drop",
        description="a turn that held no single action, or that the student's reader would not understand: "
        "drop its conversation, leave the turn out of the loss, or learn it",
    )
    failed_turns: Literal["learn", "mask"] = Field(
        "learn",
        description="a turn whose action was not carried out, as the shell or the editor says: learn it, or"
        " leave it out of the loss",
    )
    over_long: Literal["drop", "truncate_left_of_last_turn", "split", "keep_truncate"] = Field(
        "drop",
        description="a conversation longer than max_tokens: leave it out, keep its head and its last "
        "exchanges, make several rows of it, or keep its beginning",
    )


class Rows(Recipe):
    """How conversations are written in training rows."""

    style: Literal["text", "xml", "ticks", "tool"] = Field(
        "text",
        description="as the policy wrote it; or each action as SWE-agent's function in XML, as a fenced "
        "command, as a tool call",
    )
    system: str = Field(
        "",
        description="file with the student's system prompt (SWE-agent configuration, or text); empty keeps "
        "the recorded one",
    )
    tools: str = Field(
        "",
        description="file with tool definitions for the style tool; empty is those of the recording program",
    )


class PairChoice(Recipe):
    """How DPO selects pairs of a resolved and an unresolved trajectory of the same task."""

    per_instance: int = Field(1, ge=1, description="pairs of a task at most")
    seed: int = Field(0, ge=0, description="of the draw among its trajectories")


class Job(Recipe):
    """Resources that a job requests from a cluster, besides train.threads CPUs for each process. They affect
    a result by rounding at most."""

    nodes: int = Field(1, ge=1, description="nodes that train together")
    gpus: int = Field(0, ge=0, description="GPUs of each node, with a process each")
    ranks: int = Field(
        1, ge=1, description="without GPUs: processes on each node, with train.threads CPUs each"
    )
    mem_mb: int = Field(6000, ge=1, description="memory of the first attempt")
    minutes: int = Field(480, ge=1, description="time of the first attempt")
    gpu_gb: float = Field(
        80, gt=0, description="memory of a GPU in GiB, for the estimate before it is asked for"
    )
    save_every_n_steps: int = Field(
        0,
        ge=0,
        description="optimizer steps between saves of the state that a killed run goes on from; 0 saves at "
        "the end of each epoch only",
    )


class Lora(Recipe):
    """Low-rank adapters, for the recipes lora_finetune_... After training the adapters are merged into the
    weights."""

    rank: int = Field(64, ge=1, description="of each adapter")
    alpha: float = Field(64, gt=0, description="scale: an adapter counts alpha / rank")
    dropout: float = Field(0, ge=0, lt=1, description="before each adapter")
    attention: Distinct[Literal["q_proj", "k_proj", "v_proj", "output_proj"]] = Field(
        ["q_proj", "k_proj", "v_proj", "output_proj"],
        min_length=1,
        description="projections of attention that have one",
    )
    mlp: bool = Field(True, description="whether the feed-forward layers have them")


class Dpo(Recipe):
    """Preference learning, for the recipe full_dpo_distributed. The reference model is the base model."""

    beta: float = Field(0.1, gt=0, description="how strongly the reference holds the model")


class Train(Recipe):
    """The hyperparameters of a training."""

    epochs: int = Field(3, ge=1, description="passes over the dataset")
    batch_size: int = Field(1, ge=1, description="conversations of a forward pass")
    gradient_accumulation_steps: int = Field(1, ge=1, description="forward passes of an optimizer step")
    packed: bool = Field(
        False,
        description="conversations one after another in one sequence, none seen by another; a forward pass "
        "is one such pack, and batch_size and gradient_accumulation_steps count packs; for "
        "GPUs: on a CPU it is slower",
    )
    max_seq_len: int = Field(32768, ge=1, description="packed: tokens of a pack")
    group_by_length: bool = Field(
        False,
        description="the same conversations in each step, dealt into forward passes by length: less "
        "padding, the same gradient",
    )
    max_batch_tokens: int = Field(
        16384,
        ge=1,
        description="group_by_length: tokens of a forward pass with their padding; a longer conversation "
        "goes alone",
    )
    sharded: bool = Field(
        True,
        description="several processes share weights, gradients and moments (FSDP); else each holds all of "
        "them, and gradients are averaged once a step: faster where a model is small",
    )
    lr: float = Field(1e-05, gt=0, description="peak learning rate of AdamW")
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field(
        [0.9, 0.999], min_length=2, max_length=2, description="AdamW's moment decays"
    )
    weight_decay: float = Field(0.01, ge=0, description="of AdamW")
    warmup_steps: int = Field(5, ge=0, description="steps of linear warm-up, before the cosine decay to 0")
    clip_grad_norm: float | None = Field(1.0, gt=0, description="largest gradient norm; null for no bound")
    seed: int = Field(0, ge=0, description="of initialization and dropout")
    threads: int = Field(
        2, ge=1, description="CPU threads; part of the result, as sums depend on their order"
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where it trains")
    dtype: Literal["auto", "fp32", "bf16"] = Field(
        "auto", description="of weights and optimizer; auto is bf16 on a GPU, fp32 on a CPU"
    )
    activation_checkpointing: bool = Field(False, description="recompute activations: less memory, more time")
    compile: bool = Field(False, description="torch.compile the model and loss")
    optimizer_in_bwd: bool = Field(
        False,
        description="step each weight in the backward pass: no gradients are kept, and none can be "
        "accumulated or clipped",
    )
    lora: Lora | None = Field(
        None,
        description="low-rank adapters, for the recipes lora_finetune_...; they are merged into the weights"
        " at the end",
    )
    dpo: Dpo | None = Field(
        None,
        description="preference learning, for the recipe full_dpo_distributed; the reference is the base",
    )


class Sft(Recipe):
    """How resolved trajectories become a dataset, and how the base model is fine-tuned on the dataset."""

    base: str = Field(
        min_length=1,
        description="what is fine-tuned: a model recipe, or sft:<recipe> for the checkpoint that one makes",
    )
    trainer: Literal["torchtune", "trl"] = Field("torchtune", description="the library that trains")
    wandb: str = Field("", description="project at Weights & Biases that is told each step; empty is none")
    recipe: Literal[
        "full_finetune_single_device",
        "full_finetune_distributed",
        "lora_finetune_single_device",
        "lora_finetune_distributed",
        "full_dpo_distributed",
    ] = Field(
        "full_finetune_single_device",
        description="torchtune's name of what is run; several processes always run the distributed form",
    )
    sources: list[Source] = Field(
        [], description="runs whose trajectories become rows, instead of the expert's of the experiment"
    )
    selection: Selection = Selection()
    rows: Rows = Rows()
    pairs: PairChoice = PairChoice()
    job: Job = Job()
    train: Train = Train()
