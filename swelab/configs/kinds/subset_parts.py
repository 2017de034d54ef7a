"""Keys that several kinds of subsets have."""

from typing import Annotated, Literal

from pydantic import Field

from swelab.configs.recipe_model import Recipe

Side = Annotated[
    Literal["train", "heldout"], Field(description="side of the split, by a hash of repository and function")
]
HeldoutShare = Annotated[float, Field(ge=0, le=1, description="share of functions on the held-out side")]
Limit = Annotated[int, Field(ge=1, description="how many tasks; a larger limit keeps the first ones")]
Seed = Annotated[int, Field(description="seed of the order of candidates")]


Guard = Annotated[
    Literal["whole", "reference"],
    Field(
        description="how patches are judged: by all that the grader has, or by their log alone, as "
        "SWE-bench's own harness does, without guard and witness (docs/grading.md)"
    ),
]


class Validation(Recipe):
    """How tasks are validated before they are used."""

    gold_runs: int = Field(3, ge=1, le=20, description="runs of each gold patch; all must be resolved")
    together: bool = Field(
        False,
        description="test files of a repository share a run, and so do bugs in different files: only where "
        "modules do not depend on one another",
    )
    allow_leaks: bool = Field(
        False, description="keep tasks whose answer is in files that the agent can read; the lock names them"
    )


Tests = Annotated[
    Literal["visible", "hidden"],
    Field(
        description="whether the agent sees the tests to repair; hidden, their files are not in its checkout "
        "and the statement does not name them",
    ),
]
