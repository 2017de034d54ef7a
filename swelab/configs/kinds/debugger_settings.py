"""Settings that only the agent `debugger` has: its tools, the form of tool calls, its pdb sessions."""

from typing import Literal

from pydantic import Field

from swelab.configs.recipe_model import Distinct, OrAbsent, Recipe

ToolName = Literal["pdb", "view", "rewrite", "eval", "grep", "listdir", "bash", "submit"]


class DebuggerSettings(Recipe):
    """The tools of the agent `debugger`, and how they work."""

    tools: Distinct[ToolName] = Field(
        ["pdb", "view", "rewrite", "eval", "grep", "listdir"],
        min_length=1,
        description="tools that the policy is offered, in this order",
    )
    calls: Literal["qwen", "api", "xml"] = Field(
        "qwen",
        description="how a turn calls a tool: qwen: the last <tool_call> with JSON in the text, or the call "
        "that the server read there; api: tool calls of the service; xml: <function=NAME> in the text",
    )
    tool_descriptions: Literal["full", "short"] = Field(
        "full", description="short: definitions of a few hundred tokens, for models with little context"
    )
    max_rewrite_steps: int = Field(0, ge=0, description="rewrites before the rollout ends; 0 is no limit")
    restart_on_rewrite: bool = Field(
        True,
        description="a pdb session begins anew after a rewrite; false leaves the old code running, and says "
        "so",
    )
    persistent_breakpoints: bool = Field(
        True, description="breakpoints are set again when a session starts; false begins without any"
    )
    entrypoint: OrAbsent[str] = Field(
        None,
        min_length=1,
        description="shell command that eval runs, in place of the task's own",
    )
    end_on_pass: bool = Field(True, description="an eval that exits with 0 submits and ends the rollout")
    view_lines: int = Field(110, ge=10, description="lines that view shows at once")
    session_seconds: float = Field(1800, gt=0, description="wall time of one pdb session")
    session_cpu_seconds: int = Field(300, ge=1, description="CPU time of one pdb session")
