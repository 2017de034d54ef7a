"""Recipe of small debugging tasks that have no known repair."""

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from swelab.configs.kinds.subset_parts import Guard, HeldoutShare, Side
from swelab.configs.recipe_model import Distinct, OrAbsent, Recipe

EvaluationSet = Literal[
    "canitedit", "debugbench", "humaneval_buggy", "mbpp_buggy", "mini_nightmare", "syn-debug"
]
"""Published sets of task folders that are used to evaluate debuggers."""


class NullValidation(Recipe):
    """How tasks without a known repair are validated before they are used."""

    null_runs: int = Field(
        2,
        ge=1,
        le=20,
        description="number of test runs of the unchanged code; the same tests must fail in all runs",
    )


class CompatKeys(Recipe):
    """Published ways of judging that differ from swelab's way, for comparisons with published results."""

    final_eval: bool = Field(
        True,
        description="if false, a repair counts only if the agent's own last `eval` passed; by default every "
        "patch is tested",
    )
    skip_counts_as_pass: bool = Field(False, description="whether a skipped test counts as passed")


class KodcodeSubset(Recipe):
    """Small debugging tasks without a known repair, as rows or folders. A task is a file of tests and a file
    of code."""

    source: Literal["kodcode"]
    path: str = Field(
        min_length=1,
        description="Parquet, JSON Lines or JSON list of rows with `task_id` and `extra_info.files`; or a "
        "folder of task folders, each with test.py and its code",
    )
    evaluation_set: OrAbsent[EvaluationSet] = Field(
        None,
        description="name of the evaluation set that the path holds; such a set is never used for training "
        "or validation",
    )
    leave_out: Distinct[EvaluationSet] = Field(
        [], description="evaluation sets whose instances are excluded, by id"
    )
    side: OrAbsent[Side] = Field(None, description="side of a split by a hash of the id; all tasks if absent")
    heldout_share: HeldoutShare = 0.0
    limit: int = Field(0, ge=0, description="maximum number of tasks, in the order of the set; 0 for all")
    entrypoint: OrAbsent[str] = Field(
        None,
        min_length=1,
        description="command that runs the tests of rows without a command; folders of tasks have no command "
        "of their own",
    )
    test_timeout: int = Field(30, ge=1, description="wall time for the tests of a task, in seconds")
    compat: CompatKeys = CompatKeys()
    validation: NullValidation = Field(NullValidation(), alias="validate")
    guard: Guard = "whole"

    @model_validator(mode="after")
    def _sides_have_a_share(self) -> Self:
        if self.side and not self.heldout_share:
            raise PydanticCustomError("share", "side is {side}, without heldout_share", {"side": self.side})
        return self
