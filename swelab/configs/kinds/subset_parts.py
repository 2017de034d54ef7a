"""Keys that several kinds of subsets have."""

from typing import Annotated, Literal

from pydantic import Field

from swelab.configs.recipe_model import Recipe

Side = Annotated[
    Literal["train", "heldout"], Field(description="side of the split by a hash of repository and function")
]
HeldoutShare = Annotated[float, Field(ge=0, le=1, description="share of the functions on the held-out side")]
Limit = Annotated[
    int,
    Field(
        ge=1,
        description="maximum number of tasks; a larger limit keeps the tasks of a smaller one and adds "
        "further tasks",
    ),
]
Seed = Annotated[int, Field(description="seed of the order of candidates")]


Guard = Annotated[
    Literal["whole", "reference"],
    Field(
        description="how patches are judged: with guard and witness, or by the log alone, as in SWE-bench's "
        "own harness (docs/grading.md)"
    ),
]


class Validation(Recipe):
    """How tasks are validated before they are used."""

    gold_runs: int = Field(
        3, ge=1, le=20, description="number of runs of each gold patch; all must be resolved"
    )
    together: bool = Field(
        False,
        description="whether test files of a repository share a run, and bugs in different files too; only "
        "valid if modules do not depend on one another",
    )
    allow_leaks: bool = Field(
        False,
        description="keep tasks whose answer is in files that the agent can read; the lock lists these files",
    )


Tests = Annotated[
    Literal["visible", "hidden"],
    Field(
        description="whether the agent sees the tests to repair; if they are hidden, their files are missing "
        "from the checkout, and the statement does not name them"
    ),
]
