"""Recipe of a rater: the policy that rates the difficulty of tasks, and its prompts."""

from pydantic import Field

from swelab.configs.recipe_model import Recipe


class Rater(Recipe):
    """A rater of task difficulty: its policy and its prompts."""

    policy: str = Field(
        description="policy that rates: a hosted model or a checkpoint; its scaffold is not used"
    )
    system_template: str = Field(
        description="jinja2 template of the system message; its variables are the fields of the task's row"
    )
    instance_template: str = Field(
        description="jinja2 template of the user message; its variables are the fields of the task's row: "
        "problem_statement, patch, ..."
    )
    ratings: dict[str, int] = Field(
        {"easy": 1, "medium": 5, "hard": 9},
        min_length=2,
        description="maps each word that the model may answer to a rating",
    )
    attempts: int = Field(
        3, ge=1, le=10, description="maximum number of requests per task until the answer is one of the words"
    )
