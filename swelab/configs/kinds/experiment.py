"""Recipe of an experiment. It only names other recipes."""

from typing import Literal

from pydantic import Field

from swelab.configs.kinds.sft import Source
from swelab.configs.recipe_model import Distinct, Recipe


class Experiment(Recipe):
    """An experiment: the names of the recipes to build, and nothing else."""

    expert: Source = Field(description="whose trajectories are trained on")
    sft: str = Field(description="the SFT recipe")
    policies: Distinct[str] = Field(min_length=1, description="policies scored on every benchmark")
    benchmarks: Distinct[str] = Field(min_length=1, description="held-out subsets; the first is the headline")
    same_commit: Literal["refuse", "report"] = Field(
        "refuse",
        description="what to do when published tasks of both sides start from the same commit of a "
        "repository",
    )
    compare: Distinct[str] = Field(min_length=2, max_length=2, description="two policies: from, to")

    @property
    def acting(self) -> list[str]:
        """All policies that make attempts, without duplicates: the expert and the scored policies."""
        return list(dict.fromkeys([self.expert.policy, *self.policies]))
