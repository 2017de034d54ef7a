"""Recipes of subsets: where tasks come from, and how they are selected."""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from swelab.configs.kinds.kodcode_subset import KodcodeSubset as KodcodeSubset
from swelab.configs.kinds.subset_parts import Guard, HeldoutShare, Limit, Seed, Side, Tests
from swelab.configs.kinds.subset_parts import Validation as Validation
from swelab.configs.recipe_model import Distinct, OrAbsent, Recipe, Sha256, Word
from swelab.records import InputError


class ForgeSubset(Recipe):
    """Bugs that are made in real packages by mutations of the syntax tree."""

    source: Literal["forge"]
    repos: Distinct[str] = Field(
        min_length=1, description="repository recipes; tasks are taken from each in turn"
    )
    side: Side
    heldout_share: HeldoutShare
    limit: Limit
    seed: Seed = 0
    max_per_function: int = Field(2, ge=1, description="maximum number of tasks per function")
    max_fail_to_pass: int = Field(10, ge=1, description="maximum number of tests that a bug may break")
    max_function_lines: int = Field(
        0, ge=0, description="maximum number of lines of a function that gets bugs; 0 for no bound"
    )
    max_bugs: int = Field(
        1,
        ge=1,
        description="maximum number of mutations in a task, in different lines of one function; how many is "
        "drawn for each task",
    )
    operators: Distinct[str] = Field([], description="mutation operators; all if empty")
    tests: Tests = "visible"
    validation: Validation = Field(Validation(), alias="validate")
    guard: Guard = "whole"


class DrillSubset(Recipe):
    """One-line bugs in a generated package."""

    source: Literal["drill"]
    repos: Distinct[str] = Field(min_length=1, max_length=1, description="repository recipe of the package")
    side: Side
    heldout_share: HeldoutShare
    limit: Limit
    seed: Seed = 0
    max_per_function: int = Field(1, ge=1, description="maximum number of tasks per function")
    operators: Distinct[str] = Field([], description="mutation operators; all if empty")
    tests: Tests = "visible"
    validation: Validation = Field(Validation(), alias="validate")
    guard: Guard = "whole"


class Criteria(Recipe):
    """Which rows of a data set are kept."""

    id_pattern: str = Field("", description="regular expression that must be found in instance_id")
    min_fail_to_pass: int = Field(1, ge=1, description="minimum number of tests to repair")
    max_fail_to_pass: int = Field(0, ge=0, description="maximum number of tests to repair; 0 for no bound")
    repos: Distinct[str] = Field([], description="accepted values of `repo`; all if empty")
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
        description="accepted languages, all if empty: the row's own `language`, or the language of most "
        "lines that its patch changes",
    )
    difficulties: Distinct[str] = Field(
        [],
        description="accepted values of the row's own `difficulty`, such as '<15 min fix' of SWE-bench "
        "Verified; all if empty",
    )
    ratings: Distinct[int] = Field(
        [],
        description="accepted difficulties from `ratings`: 1 (less than 15 minutes), 5, 9 (more than an "
        "hour); all if empty",
    )
    min_statement_chars: int = Field(
        0, ge=0, description="minimum number of characters of the problem statement"
    )
    max_statement_chars: int = Field(
        0, ge=0, description="maximum number of characters of the problem statement; 0 for no bound"
    )
    min_patch_lines: int = Field(
        0, ge=0, description="minimum number of lines that the row's patch adds and removes"
    )
    max_patch_lines: int = Field(
        0, ge=0, description="maximum number of lines that the row's patch adds and removes; 0 for no bound"
    )
    min_patch_files: int = Field(0, ge=0, description="minimum number of files that the row's patch changes")
    max_patch_files: int = Field(
        0, ge=0, description="maximum number of files that the row's patch changes; 0 for no bound"
    )


class Ratings(Recipe):
    """Where the difficulty of rows comes from: a rater and the subset that it rated, or a file."""

    model_config = ConfigDict(
        json_schema_extra={
            "dependentRequired": {"rater": ["subset"], "subset": ["rater"]},
            "oneOf": [{"required": ["rater"]}, {"required": ["path"]}],
        }
    )

    rater: OrAbsent[str] = Field(None, description="name of the rater recipe")
    subset: OrAbsent[str] = Field(
        None, description="subset that the rater rated; it must contain all rows that may be chosen"
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
        None, description="local copy of the set, in place of `dataset`: a JSON list, JSON Lines or Parquet"
    )
    dataset: OrAbsent[str] = Field(
        None,
        pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$",
        description="name of the set on the Hugging Face hub",
    )
    split: str = Field("train", description="split of the set")
    scorer: Literal["local", "sb-cli"] = Field(
        "local",
        description="what judges predictions: tests in sandboxes, or SWE-bench's service "
        "(docs/scoring-service.md)",
    )
    answers: Literal["public", "private"] = Field(
        "public",
        description="whether rows are published without patch and tests; then nothing can be validated, and "
        "only SWE-bench's service judges (`scorer: sb-cli`)",
    )
    service: OrAbsent[Literal["swe-bench_verified", "swe-bench_lite", "swe-bench-m"]] = Field(
        None, description="name of the set at the service, for a local copy; by default the name in `dataset`"
    )
    revision: OrAbsent[str] = Field(
        None, pattern=r"^[0-9a-f]{40}$", description="commit of the set; required with `dataset`"
    )
    files: list[Word] = Field(
        [],
        description="shell patterns of the set's files: JSON, JSON Lines or Parquet; data/<split>-*.parquet "
        "if empty",
    )
    sha256: dict[str, Sha256] = Field(
        {}, description="expected hashes of files, in addition to the hashes that the hub lists"
    )
    criteria: Criteria = Criteria()
    images: Literal["swe-bench", "swe-gym"] = Field(
        "swe-bench", description="naming convention of the images, for rows without image_name"
    )
    exclude: Distinct[str] = Field(
        [],
        description="subsets, such as benchmarks, whose instances, repositories at a commit and changes are "
        "excluded",
    )
    ratings: OrAbsent[Ratings] = None
    order: Literal["seeded", "published"] = Field(
        "seeded", description="order in which rows are chosen: random by the seed, or as published"
    )
    stratify: Literal["none", "equal", "proportional"] = Field(
        "none",
        description="balance of repositories: none, each in turn, or in proportion to their number of rows",
    )
    limit: int = Field(
        0,
        ge=0,
        description="maximum number of rows; 0 for all; a larger limit keeps the rows of a smaller one and "
        "adds further rows",
    )
    seed: int = Field(0, description="seed of the order in which rows are chosen")
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
    path: str = Field(min_length=1, description="folder that contains the task folders")
    repos: Distinct[str] = Field(
        [],
        description="repository recipes of the tasks that carry their code, keyed by the repository's name "
        "in the task folders",
    )
    limit: int = Field(
        0, ge=0, description="maximum number of tasks, in the order of the folders' names; 0 for all"
    )
    tests: Tests = "visible"
    validation: Validation = Field(Validation(), alias="validate")
    guard: Guard = "whole"


class AttemptedSubset(Recipe):
    """Tasks of another subset, selected by a policy's measured pass rate."""

    source: Literal["attempted"]
    subset: Word = Field(description="subset whose validated tasks are attempted")
    policy: Word = Field(description="policy that attempts each of these tasks `samples` times")
    at_least: float = Field(0.0, ge=0, le=1, description="minimum share of its attempts that solve a task")
    at_most: float = Field(1.0, ge=0, le=1, description="maximum share of its attempts that solve a task")
    order: Literal["kept", "easy-first"] = Field(
        "kept", description="order of the tasks: that of `subset`, or by decreasing pass rate"
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
"""A subset with its own tasks, which is no part of another subset."""
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
