"""Recipe of a base model: a model that swelab trains, downloads, or takes from a folder."""

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from swelab.configs.recipe_model import OrAbsent, Recipe, Sha256, Word


class Train(Recipe):
    """The settings of pre-training."""

    steps: int = Field(1500, ge=1, description="number of optimizer steps")
    batch_size: int = Field(16, ge=1, description="number of documents per step")
    lr: float = Field(0.003, gt=0, description="peak learning rate of AdamW")
    betas: list[float] = Field([0.9, 0.98], min_length=2, max_length=2, description="AdamW's moment decays")
    weight_decay: float = Field(0.01, ge=0, description="weight decay of AdamW")
    warmup_steps: int = Field(
        100,
        ge=0,
        description="number of steps of linear warm-up; then the learning rate decays to 0 by a cosine",
    )
    clip_grad_norm: float = Field(1.0, gt=0, description="maximum norm of the gradient")
    frame_weight: OrAbsent[float] = Field(
        None,
        ge=0,
        le=1,
        description="loss weight of the fixed tokens around the values of a tool call; 1 if absent, but then "
        "the model hardly learns to copy the values",
    )
    threads: int = Field(
        2,
        ge=1,
        description="number of CPU threads; it affects the result, because sums depend on their order",
    )


class DrillModel(Recipe):
    """A small Qwen2 model, pre-trained on generated text about a drill repository (a generated package)."""

    source: Literal["drill"]
    repo: str = Field(
        min_length=1, description="drill repository whose words and kinds of functions the text uses"
    )
    heldout_share: float = Field(
        ge=0,
        le=1,
        description="share of functions on the held-out side, as in the subsets; the text never names a "
        "held-out function",
    )
    actions: OrAbsent[Literal["shell", "tools"]] = Field(
        None,
        description="form of the last lines of the text: shell commands (default), or calls of the "
        "debugger's tools",
    )
    seed: int = Field(0, ge=0, description="seed of the weights and the text")
    train: Train = Train()


class HubModel(Recipe):
    """A published model on the Hugging Face hub."""

    source: Literal["hub"]
    repository: str = Field(
        pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$",
        description="name of the model on the hub: <owner>/<name>",
    )
    revision: str = Field(pattern=r"^[0-9a-f]{40}$", description="commit of the model's repository")
    files: list[Word] = Field(
        ["*.json", "merges.txt", "*.jinja", "model*.safetensors"],
        min_length=1,
        description="shell patterns of the files to fetch",
    )
    sha256: dict[str, Sha256] = Field(
        {}, description="expected hashes of files, in addition to the hashes that the hub lists"
    )


class FolderModel(Recipe):
    """A folder in Hugging Face layout on this machine, such as your own model."""

    source: Literal["folder"]
    path: str = Field(min_length=1, description="folder of the model; its files are linked, not copied")


class Wheel(Recipe):
    """A wheel on the package index that pip is configured to use."""

    package: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="name of the package")
    file: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*\.whl$", description="file name of the wheel")
    sha256: Sha256 = Field(description="hash of the wheel")


class HubCommit(Recipe):
    """A repository on the Hugging Face hub, at a commit."""

    repository: str = Field(
        pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$", description="name on the hub: <owner>/<name>"
    )
    revision: str = Field(pattern=r"^[0-9a-f]{40}$", description="commit of the repository")


class GgufModel(Recipe):
    """A model in a GGUF file, as llama.cpp and ollama use it. It is converted to Hugging Face layout."""

    source: Literal["gguf"]
    file: str = Field(
        min_length=1,
        description="path of the file: on this machine, in the wheel, or in the hub's repository",
    )
    wheel: OrAbsent[Wheel] = Field(None, description="the wheel that contains the file")
    hub: OrAbsent[HubCommit] = Field(None, description="the repository on the hub that contains the file")
    dtype: Literal["float32", "bfloat16"] = Field(
        "bfloat16", description="type of the converted weights; quantised weights are computed in float32"
    )

    @model_validator(mode="after")
    def _one_place(self) -> "GgufModel":
        if self.wheel and self.hub:
            raise PydanticCustomError("two_places", "wheel and hub both contain the file: name one")
        return self


Model = Annotated[DrillModel | HubModel | FolderModel | GgufModel, Field(discriminator="source")]
