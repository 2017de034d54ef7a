"""Recipe of an experiment. It only names other recipes."""

from typing import Literal

from pydantic import Field

from swelab.configs.kinds.sft import Source
from swelab.configs.recipe_model import Distinct, Recipe


class Experiment(Recipe):
    """An experiment: the names of the recipes to build, and nothing else."""

    expert: Source = Field(description="policy and train subsets whose trajectories are trained on")
    sft: str = Field(description="name of the SFT recipe")
    policies: Distinct[str] = Field(min_length=1, description="policies that are scored on every benchmark")
    benchmarks: Distinct[str] = Field(
        min_length=1, description="held-out subsets; the report shows the first one first"
    )
    same_commit: Literal["refuse", "report"] = Field(
        "refuse",
        description="action if published train and held-out tasks start from the same commit of a repository",
    )
    compare: Distinct[str] = Field(
        min_length=2, max_length=2, description="the two policies that are compared: [from, to]"
    )

    @property
    def acting(self) -> list[str]:
        """All policies that make attempts, without duplicates: the expert and the scored policies."""
        return list(dict.fromkeys([self.expert.policy, *self.policies]))
