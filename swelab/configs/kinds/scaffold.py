"""Recipes of scaffolds: an agent loop's prompts, parsing and limits. The expert, SFT data and inference use
the same scaffold."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from swelab.configs.kinds.debugger_settings import DebuggerSettings
from swelab.configs.recipe_model import OrAbsent, Recipe


class Limits(Recipe):
    """Limits for one command in the sandbox."""

    wall_seconds: float = Field(60, gt=0, description="wall time of a command")
    cpu_seconds: int = Field(60, ge=1, description="CPU time of a command")
    memory_bytes: int = Field(2147483648, ge=16777216, description="memory of the whole process tree")
    processes: int = Field(64, ge=4, description="processes at once")
    output_bytes: int = Field(1048576, ge=256, description="output kept of a command, head and tail")
    file_bytes: int = Field(268435456, ge=1024, description="biggest file")


OTHER_FENCE = (
    "bash: where an answer has no block that the agent takes, and its one fenced block begins with ```bash, "
    "that block is its command; without it such an answer is a malformed turn"
)


class _Loop(Recipe):
    system_template: str = Field(description="jinja2 template of the system message")
    instance_template: str = Field(
        description="jinja2 template of the first user message; {{task}} is the issue text"
    )
    observation_template: str = Field(
        description="jinja2 template of an observation; output.returncode, output.output, "
        "output.exception_info",
    )
    format_error_template: str = Field(
        "Answer with exactly one bash block.", description="jinja2 template of the reply to a malformed turn"
    )
    action_regex: str = Field(
        description="regular expression whose group is the command", json_schema_extra={"format": "regex"}
    )
    other_fence: OrAbsent[Literal["bash"]] = Field(None, description=OTHER_FENCE)
    submit_marker: str = Field(
        "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", description="first line of output that ends the rollout"
    )
    max_observation_chars: int = Field(
        10000, ge=100, description="an observation's head and tail are kept up to this"
    )
    step_limit: int = Field(30, ge=1, description="model calls of a rollout")
    max_format_errors: int = Field(3, ge=1, description="malformed turns in a row before the rollout ends")
    wall_seconds: int = Field(1800, ge=1, description="wall time of a rollout")
    cost_limit: float = Field(0, ge=0, description="dollars of a rollout; 0 is no limit")
    limits: Limits = Limits()


class MiniScaffold(_Loop):
    """Mini-swe-agent's loop. Each turn has one command in a fenced block."""

    agent: Literal["mini"] = "mini"


class MiniLoop(_Loop):
    """Settings of mini-swe-agent's loop, from a recipe or from the installed package."""

    agent: Literal["mini", "debugger"] = "mini"
    debugger: OrAbsent[DebuggerSettings] = Field(None, description="tools and forms of the agent debugger")
    wall_seconds: int = Field(1800, ge=0, description="wall time of a rollout; 0 is no limit")
    calls: OrAbsent[Literal["bash"]] = Field(None, description="actions are calls of this tool")
    environment: OrAbsent[dict[str, str]] = Field(None, description="variables of every command")
    prelude: OrAbsent[str] = Field(None, description="shell line that runs before every command")
    submission: OrAbsent[Literal["printed"]] = Field(
        None, description="the patch is what the submitting command prints, not the diff of the checkout"
    )


class PackageLimits(Recipe):
    """Limits for one command in the sandbox. If no wall time is given, the package's wall time is used."""

    wall_seconds: OrAbsent[float] = Field(None, gt=0, description="wall time of a command")
    cpu_seconds: OrAbsent[int] = Field(None, ge=1, description="CPU time of a command")
    memory_bytes: OrAbsent[int] = Field(None, ge=16777216, description="memory of the whole process tree")
    processes: OrAbsent[int] = Field(None, ge=4, description="processes at once")
    output_bytes: OrAbsent[int] = Field(None, ge=256, description="output kept of a command, head and tail")
    file_bytes: OrAbsent[int] = Field(None, ge=1024, description="biggest file")


class MiniSwebenchScaffold(Recipe):
    """Mini-swe-agent with the benchmark settings of the installed package (docs/mini.md)."""

    agent: Literal["mini-swebench"]
    form: Literal["tool", "text"] = Field(
        "text",
        description="tool: calls of the tool bash, as the package runs by default; text: a fenced block a "
        "turn",
    )
    other_fence: OrAbsent[Literal["bash"]] = Field(None, description=f"{OTHER_FENCE}; for form: text")
    step_limit: OrAbsent[int] = Field(
        None, ge=1, description="model calls of a rollout; without it the package's, 250"
    )
    cost_limit: OrAbsent[float] = Field(
        None, ge=0, description="dollars of a rollout, 0 is no limit; without it the package's, 3"
    )
    wall_seconds: int = Field(
        0, ge=0, description="wall time of a rollout; 0 is no limit, as the package has it"
    )
    limits: PackageLimits = PackageLimits(
        cpu_seconds=600, memory_bytes=10 * 2**30, processes=1024, file_bytes=2 * 2**30
    )


class DebuggerScaffold(DebuggerSettings):
    """An agent with tools to read, edit, run and debug a task's code, including pdb (docs/debugger.md)."""

    agent: Literal["debugger"]
    system_template: str = Field(
        description="jinja2 template of the system message; {{tree}} lists the files, {{tools}} describes "
        "the tools in words (for calls: xml)"
    )
    instance_template: str = Field(
        description="jinja2 template of the first user message; {{task}} is the issue text, {{entrypoint}} "
        "what eval runs"
    )
    observation_template: str = Field(
        "{{output.output}}", description="jinja2 template of an observation; output.tool, output.output"
    )
    format_error_template: str = Field(
        "{{error}}",
        description="jinja2 template of the reply to a malformed turn; {{error}} says what is wrong",
    )
    max_observation_chars: int = Field(
        10000, ge=100, description="an observation's head and tail are kept up to this"
    )
    step_limit: int = Field(80, ge=1, description="model calls of a rollout")
    max_format_errors: int = Field(3, ge=1, description="malformed turns in a row before the rollout ends")
    wall_seconds: int = Field(5400, ge=1, description="wall time of a rollout")
    cost_limit: float = Field(0, ge=0, description="dollars of a rollout; 0 is no limit")
    limits: Limits = Limits(wall_seconds=30)


class SweAgentScaffold(Recipe):
    """The program SWE-agent, which the user installs (docs/swe-agent.md)."""

    agent: Literal["swe-agent"]
    config: str = Field(
        min_length=1,
        description="a configuration file of SWE-agent; of it the section agent is used, without its model",
    )
    call_limit: int = Field(75, ge=0, description="model calls of an instance; 0 is no limit")
    cost_limit: float = Field(
        0,
        ge=0,
        description="dollars of an instance, for a hosted model whose price LiteLLM knows; weights that we "
        "serve have no price, and no such limit",
    )
    retries: int = Field(10, ge=1, description="times that a model is asked before it counts as lost")
    docker_args: list[str] = Field(
        ["--memory=10g", "--pids-limit=4096"], description="options of docker run for every container"
    )
    python_standalone_dir: str = Field(
        "",
        description='"" when images hold the program swerex-remote or may install it; a folder such as /root '
        "lets SWE-ReX build every image anew with a Python of its own there, which needs the internet",
    )
    port: int = Field(
        0,
        ge=0,
        le=65535,
        description="port of this machine that leads to a container; 0 for a free one each, 8000 with "
        "--network=host and one worker",
    )
    startup_seconds: float = Field(180, gt=0, description="for a container's server to answer")
    start_delay: float = Field(
        0.3, ge=0, description="instances of a batch begin within this many seconds times the workers"
    )
    stall_seconds: float = Field(
        1800,
        gt=0,
        description="a batch that leaves no trace for so long hangs, and is ended; above the time-outs of "
        "the configuration",
    )


def _agent(given: Any) -> Any:
    return given.get("agent", "mini") if isinstance(given, dict) else given.agent


Scaffold = Annotated[
    Annotated[MiniScaffold, Tag("mini")]
    | Annotated[MiniSwebenchScaffold, Tag("mini-swebench")]
    | Annotated[DebuggerScaffold, Tag("debugger")]
    | Annotated[SweAgentScaffold, Tag("swe-agent")],
    Discriminator(_agent),
]

WHOLE = MiniLoop(
    system_template="",
    instance_template="",
    observation_template="",
    format_error_template="",
    action_regex=r"\A(.*)\Z",
)
"""A scaffold for programs that use the whole answer, and do not parse a command from the answer."""
