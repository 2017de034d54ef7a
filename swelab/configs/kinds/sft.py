"""Recipe of fine-tuning: how resolved trajectories become a dataset, and how a base model is trained on
it."""

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from swelab.choices import ROW_STYLES, meanings
from swelab.configs.recipe_model import Distinct, OneOf, OrAbsent, Recipe
from swelab.outcomes import EVIDENCE, TRAINABLE_ROLLOUTS

if TYPE_CHECKING:
    Trainable = str
    Evidence = str
else:
    Trainable = Literal[tuple(map(str, TRAINABLE_ROLLOUTS))]
    Evidence = Literal[tuple(map(str, EVIDENCE))]


class Source(Recipe):
    """Rollouts of one policy whose trajectories become training rows."""

    policy: str = Field(description="name of the policy")
    subsets: Distinct[str] = Field(min_length=1, description="names of train subsets")


class Selection(Recipe):
    """Which trajectories become training rows."""

    max_tokens: int = Field(
        32768, ge=1, description="maximum length of a conversation, in tokens of the base model"
    )
    per_instance: int = Field(1, ge=1, description="maximum number of trajectories per instance")
    choice: Literal["shortest", "random"] = Field(
        "shortest", description="which trajectories of an instance are chosen first"
    )
    seed: int = Field(0, ge=0, description="seed of the random choice")
    outcomes: Distinct[
        Annotated[Trainable, Field(json_schema_extra={"$comment": "swelab.outcomes TRAINABLE_ROLLOUTS"})]
    ] = Field([], description="accepted ends of a trajectory; all ends if empty")
    evidence: Annotated[Evidence, Field(json_schema_extra={"$comment": "swelab.outcomes EVIDENCE"})] = Field(
        "resolved",
        description="which trajectories count as resolved: all of them, or only those whose patch the "
        "witness confirms (docs/grading.md)",
    )
    unresolved: bool = Field(
        False, description="whether unresolved trajectories are used too; forged ones never are"
    )
    nonempty_patch: bool = Field(False, description="use only trajectories with a patch")
    no_test_edits: bool = Field(
        False, description="use only trajectories whose patch changes no file that has the name of a test"
    )
    malformed_turns: Literal["drop", "mask", "keep"] = Field(
        "drop",
        description="treatment of a turn with no action, with several, or with one that the student's parser "
        "would not read: drop the conversation, mask the turn, or train it",
    )
    failed_turns: Literal["learn", "mask"] = Field(
        "learn",
        description="treatment of a turn whose action was not carried out, according to the shell or the "
        "editor: train it, or mask it",
    )
    over_long: Literal["drop", "truncate_left_of_last_turn", "split", "keep_truncate"] = Field(
        "drop",
        description="treatment of a conversation longer than max_tokens: drop it, keep its head and its last "
        "exchanges, split it into several rows, or keep its beginning",
    )


class Rows(Recipe):
    """How conversations are written in training rows."""

    style: Annotated[str, OneOf(ROW_STYLES)] = Field(
        "text", description=f"form of the turns: {meanings(ROW_STYLES)}"
    )
    thoughts: OrAbsent[Literal["keep", "last", "drop"]] = Field(
        None,
        description="which thoughts of the policy are trained: those of all turns, of a row's last turn, or "
        "none; if absent, those within a turn's text, and not those that a service sent beside it",
    )
    system: str = Field(
        "",
        description="file with the system prompt of the student (SWE-agent configuration, or text); empty "
        "keeps the recorded prompt",
    )
    tools: str = Field(
        "",
        description="file with tool definitions for the style tool; empty uses the definitions of the "
        "recording program",
    )


class PairChoice(Recipe):
    """How DPO selects pairs of a resolved and an unresolved trajectory of the same task."""

    per_instance: int = Field(1, ge=1, description="maximum number of pairs per task")
    seed: int = Field(0, ge=0, description="seed of the choice among a task's trajectories")


class Job(Recipe):
    """Resources that a job requests from a cluster, besides train.threads CPUs for each process. They affect
    a result by rounding at most."""

    nodes: int = Field(1, ge=1, description="number of nodes that train together")
    gpus: int = Field(0, ge=0, description="number of GPUs per node; each has one process")
    ranks: int = Field(
        1, ge=1, description="number of processes per node without GPUs; each has train.threads CPUs"
    )
    mem_mb: int = Field(6000, ge=1, description="memory that the first attempt of the job requests")
    minutes: int = Field(480, ge=1, description="time that the first attempt of the job requests")
    gpu_gb: float = Field(
        80.0, gt=0, description="memory of a GPU in GiB, for the estimate before the job is submitted"
    )
    save_every_n_steps: int = Field(
        0,
        ge=0,
        description="number of optimizer steps between two saves of the state from which a killed run "
        "continues; 0 saves only at the end of each epoch",
    )


class Lora(Recipe):
    """Low-rank adapters, for the recipes lora_finetune_... After training the adapters are merged into the
    weights."""

    rank: int = Field(64, ge=1, description="rank of each adapter")
    alpha: float = Field(64.0, gt=0, description="scale: an adapter's output is multiplied by alpha / rank")
    dropout: float = Field(0.0, ge=0, lt=1, description="dropout before each adapter")
    attention: Distinct[Literal["q_proj", "k_proj", "v_proj", "output_proj"]] = Field(
        ["q_proj", "k_proj", "v_proj", "output_proj"],
        min_length=1,
        description="attention projections with an adapter",
    )
    mlp: bool = Field(True, description="whether the feed-forward layers have adapters")


class Dpo(Recipe):
    """Preference learning, for the recipe full_dpo_distributed. The reference model is the base model."""

    beta: float = Field(0.1, gt=0, description="strength of the reference model's constraint")


class Train(Recipe):
    """The hyperparameters of a training."""

    epochs: int = Field(3, ge=1, description="number of passes over the dataset")
    batch_size: int = Field(1, ge=1, description="number of conversations per forward pass")
    gradient_accumulation_steps: int = Field(
        1, ge=1, description="number of forward passes per optimizer step"
    )
    packed: bool = Field(
        False,
        description="put several conversations into one sequence, without attention between them; a forward "
        "pass is one such pack, and batch_size and gradient_accumulation_steps count packs; for "
        "GPUs: on a CPU it is slower",
    )
    max_seq_len: int = Field(32768, ge=1, description="for packed: number of tokens of a pack")
    group_by_length: bool = Field(
        False,
        description="put conversations of similar length into a forward pass: less padding, but the same "
        "conversations and the same gradient per step",
    )
    max_batch_tokens: int = Field(
        16384,
        ge=1,
        description="for group_by_length: maximum number of tokens of a forward pass, with padding; a longer "
        "conversation has a pass of its own",
    )
    sharded: bool = Field(
        True,
        description="several processes share weights, gradients and moments (FSDP); if false, each has all "
        "of them, and gradients are averaged once per step, which is faster for a small model",
    )
    lr: float = Field(1e-05, gt=0, description="peak learning rate of AdamW")
    betas: list[Annotated[float, Field(ge=0, lt=1)]] = Field(
        [0.9, 0.999], min_length=2, max_length=2, description="AdamW's moment decays"
    )
    weight_decay: float = Field(0.01, ge=0, description="weight decay of AdamW")
    warmup_steps: int = Field(
        5,
        ge=0,
        description="number of steps of linear warm-up; then the learning rate decays to 0 by a cosine",
    )
    clip_grad_norm: float | None = Field(
        1.0, gt=0, description="maximum norm of the gradient; null for no bound"
    )
    seed: int = Field(0, ge=0, description="seed of initialization and dropout")
    threads: int = Field(
        2,
        ge=1,
        description="number of CPU threads; it affects the result, because sums depend on their order",
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="device of the training")
    dtype: Literal["auto", "fp32", "bf16"] = Field(
        "auto",
        description="data type of the computation and of the saved weights; auto is bf16 on a GPU, fp32 on a "
        "CPU; torchtune's optimizer steps on weights in this type, TRL's in fp32",
    )
    activation_checkpointing: bool = Field(
        False, description="recompute activations: saves memory, takes more time"
    )
    compile: bool = Field(False, description="compile the model and the loss with torch.compile")
    optimizer_in_bwd: bool = Field(
        False,
        description="update each weight in the backward pass: no gradients are stored, so they cannot be "
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
        description="start of the fine-tuning: a model recipe, or sft:<recipe> for that recipe's checkpoint",
    )
    trainer: Literal["torchtune", "trl"] = Field("torchtune", description="library that trains")
    wandb: str = Field(
        "", description="Weights & Biases project that gets the metrics of each step; none if empty"
    )
    recipe: Literal[
        "full_finetune_single_device",
        "full_finetune_distributed",
        "lora_finetune_single_device",
        "lora_finetune_distributed",
        "full_dpo_distributed",
    ] = Field(
        "full_finetune_single_device",
        description="name of torchtune's recipe; several processes always use its distributed form",
    )
    sources: list[Source] = Field(
        [], description="runs whose trajectories become rows; by default the expert's runs of the experiment"
    )
    selection: Selection = Selection()
    rows: Rows = Rows()
    pairs: PairChoice = PairChoice()
    job: Job = Job()
    train: Train = Train()
