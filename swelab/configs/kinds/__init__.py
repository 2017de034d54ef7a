"""The kinds of recipes, one module for each kind. The models of a kind define each key, with type, default,
bounds and meaning. `python -m scripts.write_schemas` generates JSON Schemas for editors from these models."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from swelab.configs.kinds.config import Config
from swelab.configs.kinds.experiment import Experiment
from swelab.configs.kinds.model import Model
from swelab.configs.kinds.policy import Policy as Policy
from swelab.configs.kinds.rater import Rater
from swelab.configs.kinds.repo import Repo
from swelab.configs.kinds.rl import Rl
from swelab.configs.kinds.scaffold import Scaffold
from swelab.configs.kinds.sft import Sft as Sft
from swelab.configs.kinds.subset import Subset

T = TypeVar("T")


@dataclass(frozen=True)
class RecipeKind(Generic[T]):
    """A kind of recipe: the folder of its files, and the pydantic model (or union of models) of a file.
    chosen_by: for a union, (key whose value selects the model, meaning of that key)."""

    name: str
    folder: str
    model: Any
    about: str
    chosen_by: tuple[str, str] = ("", "")

    @cached_property
    def adapter(self) -> TypeAdapter[T]:
        """The validator that converts settings to the model. It is built when the first recipe of the kind is
        read."""
        return TypeAdapter(self.model)


CONFIG = RecipeKind[Config]("config", "", Config, str(Config.__doc__))
EXPERIMENT = RecipeKind[Experiment]("experiment", "experiments", Experiment, str(Experiment.__doc__))
SUBSET = RecipeKind[Subset](
    "subset", "subsets", Subset, "Which tasks, made or taken from where.", ("source", "what makes the tasks")
)
REPO = RecipeKind[Repo](
    "repo",
    "repos",
    Repo,
    "Where the code that tasks are made in comes from.",
    ("source", "kind of repository"),
)
POLICY = RecipeKind[Policy](
    "policy",
    "policies",
    Policy,
    "Who acts: a scripted policy, a hosted model, a checkpoint that we serve, or recorded trajectories.",
    ("kind", "kind of policy"),
)
SCAFFOLD = RecipeKind[Scaffold](
    "scaffold",
    "scaffolds",
    Scaffold,
    "The agent loop's prompts, parsing and limits; shared by expert, SFT data and inference.",
    ("agent", "the loop"),
)
MODEL = RecipeKind[Model](
    "model", "models", Model, "A base model: made here, or fetched.", ("source", "where it comes from")
)
SFT = RecipeKind[Sft]("sft", "sft", Sft, str(Sft.__doc__))
RL = RecipeKind[Rl]("rl", "rl", Rl, str(Rl.__doc__))
RATER = RecipeKind[Rater]("rater", "raters", Rater, str(Rater.__doc__))
RECIPE_KINDS = {
    kind.name: kind for kind in (EXPERIMENT, SUBSET, REPO, POLICY, SCAFFOLD, MODEL, SFT, RL, RATER, CONFIG)
}
"""Maps a name to its kind of recipe."""
