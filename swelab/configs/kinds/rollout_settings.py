"""Settings of the rollouts of reinforcement learning: how many, with which sampling, from which weights."""

from typing import Literal

from pydantic import Field

from swelab.configs.recipe_model import OrAbsent, Recipe


class Rollouts(Recipe):
    """How the policy attempts the tasks of a training step."""

    prompts: int = Field(
        8, ge=1, description="number of tasks per step; the rollouts of one task are a group"
    )
    samples: int = Field(8, ge=2, description="number of rollouts per task")
    at_once: int = Field(16, ge=1, description="number of rollouts that run at the same time")
    ahead: int = Field(
        0,
        ge=0,
        description="number of steps whose rollouts may start before the preceding step has updated the "
        "weights; 0 waits for the newest weights",
    )
    update: Literal["between_turns", "in_turns"] = Field(
        "between_turns",
        description="when servers load new weights: after the running turns, or at once, so that running "
        "turns continue with them; each token records the version of its weights",
    )
    temperature: float = Field(
        1.0, gt=0, description="sampling temperature; the trainer divides logits by it too"
    )
    top_p: float = Field(
        1.0,
        gt=0,
        le=1,
        description="nucleus sampling; stored log-probabilities are those before it is applied",
    )
    max_tokens: int = Field(1024, ge=1, description="maximum number of tokens of one turn")
    context_length: int = Field(32768, ge=1, description="maximum number of tokens of a conversation")
    max_total_tokens: int = Field(
        0, ge=0, description="number of tokens in a server's cache; 0 lets the engine decide"
    )
    shuffled: bool = Field(
        True,
        description="whether each epoch has its own random order; if false, tasks keep the order of the "
        "subset",
    )
    history: Literal["whole", "managed"] = Field(
        "whole",
        description="what the policy sees of a long conversation: all of it, or its first and last turns "
        "with one line in place of the others",
    )
    thinking: OrAbsent[bool] = Field(
        None,
        description="value of `enable_thinking` for the chat template: false requests turns without "
        "thoughts; if absent, the template gets no value",
    )
    keep: Literal["all", "first", "none"] = Field(
        "all", description="rollouts that are written as folders: all, the first of each group, or none"
    )
    head_share: float = Field(
        0.3, ge=0, le=1, description="for `managed`: share of the context that the first turns get"
    )

    @property
    def sampling(self) -> dict[str, float]:
        """The sampling settings of an engine for one turn."""
        return {"temperature": self.temperature, "top_p": self.top_p, "max_tokens": self.max_tokens}
