"""Recipes of subsets: where tasks come from, and how they are selected."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from swelab.configs.kinds.kodcode_subset import KodcodeSubset as KodcodeSubset
from swelab.configs.kinds.subset_parts import (
    Guard,
    HeldoutShare,
    Limit,
    Seed,
    Side,
    Tests,
)
from swelab.configs.kinds.subset_parts import Validation as Validation
from swelab.configs.recipe_model import Distinct, OrAbsent, Recipe, Sha256, Word
from swelab.records import InputError


class ForgeSubset(Recipe):
    """Bugs that are made in real packages by mutations of the syntax tree."""

    source: Literal["forge"]
    repos: Distinct[str] = Field(min_length=1, description="repository recipes, which take turns")
    side: Side
    heldout_share: HeldoutShare
    limit: Limit
    seed: Seed = 0
    max_per_function: int = Field(2, ge=1, description="tasks of one function")
    max_fail_to_pass: int = Field(10, ge=1, description="tests that a bug may break")
    operators: Distinct[str] = Field([], description="mutation operators; all when empty")
    tests: Tests = "visible"
    validation: Validation = Field(Validation(), alias="validate")
    guard: Guard = "whole"


class DrillSubset(Recipe):
    """One-line bugs in a generated package."""

    source: Literal["drill"]
    repos: Distinct[str] = Field(min_length=1, max_length=1, description="the package's repository recipe")
    side: Side
    heldout_share: HeldoutShare
    limit: Limit
    seed: Seed = 0
    max_per_function: int = Field(1, ge=1, description="tasks of one function")
    operators: Distinct[str] = Field([], description="mutation operators; all when empty")
    tests: Tests = "visible"
    validation: Validation = Field(Validation(), alias="validate")
    guard: Guard = "whole"


class Criteria(Recipe):
    """Which rows of a data set are kept."""

    id_pattern: str = Field("", description="regular expression searched in instance_id")
    min_fail_to_pass: int = Field(1, ge=1, description="fewest tests to repair")
    max_fail_to_pass: int = Field(0, ge=0, description="most tests to repair; 0 for no bound")
    repos: Distinct[str] = Field([], description="values of `repo` to keep; all when empty")
    languages: Distinct[
        Literal[
            "c",
            "cpp",
            "csharp",
            "go",
            "java",
            "javascript",
            "kotlin",
            "php",
            "python",
            "ruby",
            "rust",
            "scala",
            "swift",
            "typescript",
        ]
    ] = Field(
        [],
        description="languages to keep, all when empty; a row's own `language`, or that of most lines that "
        "its patch changes",
    )
    difficulties: Distinct[str] = Field(
        [],
        description="values of the row's own `difficulty` to keep, such as SWE-bench Verified's \"<15 min "
        'fix"; all when empty',
    )
    ratings: Distinct[int] = Field(
        [],
        description="difficulties to keep, of those that `ratings` gives: 1 (less than 15 minutes), 5, 9 "
        "(more than an hour); all when empty",
    )
    min_statement_chars: int = Field(0, ge=0, description="fewest characters of the problem statement")
    max_statement_chars: int = Field(
        0, ge=0, description="most characters of the problem statement; 0 for no bound"
    )
    min_patch_lines: int = Field(0, ge=0, description="fewest lines that the row's patch adds and removes")
    max_patch_lines: int = Field(
        0, ge=0, description="most lines that the row's patch adds and removes; 0 for no bound"
    )
    min_patch_files: int = Field(0, ge=0, description="fewest files that the row's patch changes")
    max_patch_files: int = Field(
        0, ge=0, description="most files that the row's patch changes; 0 for no bound"
    )


class Ratings(Recipe):
    """Where the difficulty of rows comes from: a rater and the subset that it rated, or a file."""

    model_config = ConfigDict(
        json_schema_extra={
            "dependentRequired": {"rater": ["subset"], "subset": ["rater"]},
            "oneOf": [{"required": ["rater"]}, {"required": ["path"]}],
        }
    )

    rater: OrAbsent[str] = Field(None, description="a rater")
    subset: OrAbsent[str] = Field(
        None, description="the subset that it rated, with all rows that may be kept"
    )
    path: OrAbsent[str] = Field(
        None,
        min_length=1,
        description="JSON Lines with `instance_id` and `difficulty`: easy, medium or hard, as SWE-smith's "
        "rater writes them",
    )

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        places = (self.rater is not None, self.subset is not None, self.path is not None)
        if places not in ((True, True, False), (False, False, True)):
            raise PydanticCustomError(
                "place",
                "names {names}, not rater and subset, or path alone",
                {"names": " and ".join(self.model_fields_set) or "no place"},
            )
        return self


class DatasetSubset(Recipe):
    """A published data set in SWE-smith's or SWE-bench's schema."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"answers": {"const": "private"}}, "required": ["answers"]},
            "then": {"properties": {"scorer": {"const": "sb-cli"}}, "required": ["scorer"]},
        }
    )

    source: Literal["dataset"]
    path: OrAbsent[str] = Field(
        None, description="local copy: a JSON list, JSON Lines or Parquet; instead of `dataset`"
    )
    dataset: OrAbsent[str] = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$",
        description="name of the set on the Hugging Face hub",
    )
    split: str = Field("train", description="split of the set")
    scorer: Literal["local", "sb-cli"] = Field(
        "local",
        description="who judges predictions: the tests in sandboxes here, or SWE-bench's service "
        "(docs/scoring-service.md)",
    )
    answers: Literal["public", "private"] = Field(
        "public",
        description="private: rows are published without patch and tests; nothing can be validated, and "
        "only SWE-bench's service judges (`scorer: sb-cli`)",
    )
    service: OrAbsent[Literal["swe-bench_verified", "swe-bench_lite", "swe-bench-m"]] = Field(
        None, description="the set's name at the service, for a local copy; by default that of `dataset`"
    )
    revision: OrAbsent[str] = Field(
        None, pattern=r"^[0-9a-f]{40}$", description="commit of the set; required with `dataset`"
    )
    files: list[Word] = Field(
        [],
        description="shell patterns of the set's files: JSON, JSON Lines or Parquet; data/<split>-*.parquet"
        " when empty",
    )
    sha256: dict[str, Sha256] = Field(
        {}, description="hashes that files must have, besides those that the hub lists"
    )
    criteria: Criteria = Criteria()
    images: Literal["swe-bench", "swe-gym"] = Field(
        "swe-bench", description="naming convention of the images, for rows without image_name"
    )
    exclude: Distinct[str] = Field(
        [],
        description="subsets of which no instance, no repository at a commit and no change is kept: "
        "benchmarks",
    )
    ratings: OrAbsent[Ratings] = None
    order: Literal["seeded", "published"] = Field(
        "seeded", description="order in which rows are taken: drawn by the seed, or as published"
    )
    stratify: Literal["none", "equal", "proportional"] = Field(
        "none", description="by repository: not at all, each in turn, or each by its share"
    )
    limit: int = Field(0, ge=0, description="how many rows; 0 for all; a larger limit keeps the first ones")
    seed: int = Field(0, description="seed of the order in which rows are taken")
    tests: Tests = "visible"
    validation: Validation = Field(Validation(), alias="validate")
    guard: Guard = "whole"

    @model_validator(mode="after")
    def _judged_where_tests_are(self) -> Self:
        if self.answers == "private" and self.scorer != "sb-cli":
            raise PydanticCustomError("scorer", "answers are private, and scorer is not sb-cli")
        return self


class HarborSubset(Recipe):
    """Task folders of Harbor, the framework behind Terminal-Bench 2."""

    source: Literal["harbor"]
    path: str = Field(min_length=1, description="folder of the task folders")
    repos: Distinct[str] = Field(
        [],
        description="repository recipes of the tasks that carry their code, by the name that they have there",
    )
    limit: int = Field(0, ge=0, description="how many tasks, in the order of the folders' names; 0 for all")
    tests: Tests = "visible"
    validation: Validation = Field(Validation(), alias="validate")
    guard: Guard = "whole"


class AttemptedSubset(Recipe):
    """Tasks of another subset, selected by a policy's measured pass rate."""

    source: Literal["attempted"]
    subset: Word = Field(description="the subset whose validated tasks are attempted")
    policy: Word = Field(description="the policy that attempts each of them `samples` times")
    at_least: float = Field(0, ge=0, le=1, description="smallest share of its attempts that solve a task")
    at_most: float = Field(1, ge=0, le=1, description="largest share of its attempts that solve a task")
    order: Literal["kept", "easy-first"] = Field(
        "kept", description="order of the tasks: that of `subset`, or the most often solved first"
    )

    def allows(self, samples: int) -> bool:
        """Returns whether some pass rate is within the bounds, if each task is attempted `samples` times."""
        return any(self.at_least <= solved / samples <= self.at_most for solved in range(samples + 1))

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.at_least > self.at_most:
            facts = {"least": self.at_least, "most": self.at_most}
            raise PydanticCustomError("bounds", "at_least is {least} and at_most {most}", facts)
        return self


OwnSubset = ForgeSubset | DrillSubset | DatasetSubset | HarborSubset | KodcodeSubset
"""A subset that has its own tasks, and is not a part of another subset."""
Subset = Annotated[OwnSubset | AttemptedSubset, Field(discriminator="source")]


def own(recipe: Subset, where: str | Path) -> OwnSubset:
    """Returns the recipe unchanged. Raises InputError if the recipe selects tasks of another subset. where:
    the recipe's file."""
    if isinstance(recipe, AttemptedSubset):
        raise InputError("source: attempted", where, "tasks of its own; scripts.choose_tasks reads this one")
    return recipe


def repos_of(recipe: Subset) -> list[str]:
    """Returns the repository recipes that contain the code of a subset's tasks. Returns [] if the tasks run
    in images."""
    return recipe.repos if isinstance(recipe, ForgeSubset | DrillSubset | HarborSubset) else []
