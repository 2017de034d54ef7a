"""Recipe of a rater: the policy that rates the difficulty of tasks, and its prompts."""

from pydantic import Field

from swelab.configs.recipe_model import Recipe


class Rater(Recipe):
    """A rater of task difficulty: its policy and its prompts."""

    policy: str = Field(
        description="the policy that is asked: a hosted model or a checkpoint; its scaffold is not used"
    )
    system_template: str = Field(description="jinja2 template of the system message; it knows the task's row")
    instance_template: str = Field(
        description="jinja2 template of the user message; it knows the task's row: problem_statement, "
        "patch, ...",
    )
    ratings: dict[str, int] = Field(
        {"easy": 1, "medium": 5, "hard": 9},
        min_length=2,
        description="rating by the word that the model answers",
    )
    attempts: int = Field(
        3, ge=1, le=10, description="times a model is asked whose answer is none of the words"
    )
