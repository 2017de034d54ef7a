"""Recipe of a base model: a model that swelab trains, downloads, or takes from a folder."""

from typing import Annotated, Literal

from pydantic import Field

from swelab.configs.recipe_model import OrAbsent, Recipe, Sha256, Word


class Train(Recipe):
    """The settings of pre-training."""

    steps: int = Field(1500, ge=1, description="optimizer steps")
    batch_size: int = Field(16, ge=1, description="documents of a step")
    lr: float = Field(0.003, gt=0, description="peak learning rate of AdamW")
    betas: list[float] = Field([0.9, 0.98], min_length=2, max_length=2, description="AdamW's moment decays")
    weight_decay: float = Field(0.01, ge=0, description="of AdamW")
    warmup_steps: int = Field(100, ge=0, description="steps of linear warm-up, before the cosine decay to 0")
    clip_grad_norm: float = Field(1.0, gt=0, description="largest gradient norm")
    frame_weight: OrAbsent[float] = Field(
        None,
        ge=0,
        le=1,
        description="loss weight, in texts about tools, of what stands around the values of a call; 1 where "
        "absent, which outweighs the words that must be copied: the model then hardly learns to copy them",
    )
    threads: int = Field(
        2, ge=1, description="CPU threads; part of the result, as sums depend on their order"
    )


class DrillModel(Recipe):
    """A small Qwen2 model, pre-trained on generated text about a drill repository (a generated package)."""

    source: Literal["drill"]
    repo: str = Field(
        min_length=1, description="the drill repository whose words and kinds of functions the text is about"
    )
    heldout_share: float = Field(
        ge=0,
        le=1,
        description="share of its functions on the held-out side, as in the subsets; no such function's "
        "name is in the text",
    )
    actions: OrAbsent[Literal["shell", "tools"]] = Field(
        None,
        description="what the text's last lines are: shell commands, also where absent, or calls of the "
        "debugger's tools",
    )
    seed: int = Field(0, ge=0, description="seed of weights and text")
    train: Train = Train()


class HubModel(Recipe):
    """A published model on the Hugging Face hub."""

    source: Literal["hub"]
    repository: str = Field(
        pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$", description="its name there, <owner>/<name>"
    )
    revision: str = Field(pattern=r"^[0-9a-f]{40}$", description="commit of the repository")
    files: list[Word] = Field(
        ["*.json", "merges.txt", "*.jinja", "model*.safetensors"],
        min_length=1,
        description="shell patterns of the files to fetch",
    )
    sha256: dict[str, Sha256] = Field(
        {}, description="hashes that files must have, besides those that the hub lists"
    )


class FolderModel(Recipe):
    """A folder in Hugging Face layout on this machine, such as your own model."""

    source: Literal["folder"]
    path: str = Field(min_length=1, description="the folder; its files are linked to, not copied")


Model = Annotated[DrillModel | HubModel | FolderModel, Field(discriminator="source")]
