"""Settings that only the agent `debugger` has: its tools, the form of tool calls, its pdb sessions."""

from typing import Annotated, Literal

from pydantic import Field

from swelab.choices import CALL_FORMS, meanings
from swelab.configs.recipe_model import Distinct, OneOf, OrAbsent, Recipe

ToolName = Literal["pdb", "view", "rewrite", "eval", "grep", "listdir", "bash", "submit"]


class DebuggerSettings(Recipe):
    """The tools of the agent `debugger`, and how they work."""

    tools: Distinct[ToolName] = Field(
        ["pdb", "view", "rewrite", "eval", "grep", "listdir"],
        min_length=1,
        description="tools that the policy may use, in this order",
    )
    calls: Annotated[str, OneOf(CALL_FORMS)] = Field(
        "qwen", description=f"form of a tool call: {meanings(CALL_FORMS)}"
    )
    tool_descriptions: Literal["full", "short"] = Field(
        "full",
        description="length of the tool descriptions; short: a few hundred tokens, for models with a short "
        "context",
    )
    max_rewrite_steps: int = Field(
        0, ge=0, description="number of rewrites after which the rollout ends; 0 for no limit"
    )
    restart_on_rewrite: bool = Field(
        True,
        description="whether a rewrite restarts the pdb session; if false, pdb goes on with the old code and "
        "says so",
    )
    persistent_breakpoints: bool = Field(
        True, description="whether a new pdb session sets the earlier breakpoints again"
    )
    entrypoint: OrAbsent[str] = Field(
        None, min_length=1, description="shell command that eval runs, in place of the task's own command"
    )
    end_on_pass: bool = Field(
        True, description="whether the rollout ends, with its patch submitted, when eval exits with code 0"
    )
    view_lines: int = Field(110, ge=10, description="number of lines that view shows at once")
    session_seconds: float = Field(1800.0, gt=0, description="wall time of one pdb session, in seconds")
    session_cpu_seconds: int = Field(300, ge=1, description="CPU time of one pdb session, in seconds")
