"""Recipes of scaffolds: an agent loop's prompts, parsing and limits. The expert, SFT data and inference use
the same scaffold."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from swelab.configs.kinds.debugger_settings import DebuggerSettings
from swelab.configs.recipe_model import OrAbsent, Recipe


class Limits(Recipe):
    """Limits for one command in the sandbox."""

    wall_seconds: float = Field(60.0, gt=0, description="wall time of a command, in seconds")
    cpu_seconds: int = Field(60, ge=1, description="CPU time of a command, in seconds")
    memory_bytes: int = Field(2147483648, ge=16777216, description="memory of the whole process tree")
    processes: int = Field(64, ge=4, description="maximum number of processes at the same time")
    output_bytes: int = Field(
        1048576,
        ge=256,
        description="maximum output of a command; of longer output the head and the tail are kept",
    )
    file_bytes: int = Field(268435456, ge=1024, description="maximum size of a file")


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
        "output.exception_info"
    )
    format_error_template: str = Field(
        "Answer with exactly one bash block.", description="jinja2 template of the reply to a malformed turn"
    )
    action_regex: str = Field(
        description="regular expression; its group matches the command", json_schema_extra={"format": "regex"}
    )
    other_fence: OrAbsent[Literal["bash"]] = Field(None, description=OTHER_FENCE)
    submit_marker: str = Field(
        "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT", description="first line of output that ends the rollout"
    )
    prelude: OrAbsent[str] = Field(
        None,
        description="shell lines that run before every command, such as functions that commands may call",
    )
    max_observation_chars: int = Field(
        10000,
        ge=100,
        description="maximum number of characters of an observation; of a longer one the head and the tail "
        "are kept",
    )
    step_limit: int = Field(30, ge=1, description="maximum number of model calls of a rollout")
    max_format_errors: int = Field(
        3, ge=1, description="number of malformed turns in a row after which the rollout ends"
    )
    wall_seconds: int = Field(1800, ge=1, description="wall time of a rollout, in seconds")
    cost_limit: float = Field(0.0, ge=0, description="maximum cost of a rollout in dollars; 0 for no limit")
    limits: Limits = Limits()


class MiniScaffold(_Loop):
    """Mini-swe-agent's loop. Each turn has one command in a fenced block."""

    agent: Literal["mini"] = "mini"


class MiniLoop(_Loop):
    """Settings of mini-swe-agent's loop, from a recipe or from the installed package."""

    agent: Literal["mini", "debugger"] = "mini"
    debugger: OrAbsent[DebuggerSettings] = Field(
        None, description="settings of the agent debugger: tools and forms of calls"
    )
    wall_seconds: int = Field(1800, ge=0, description="wall time of a rollout, in seconds; 0 for no limit")
    calls: OrAbsent[Literal["bash"]] = Field(None, description="name of the tool whose calls are the actions")
    environment: OrAbsent[dict[str, str]] = Field(None, description="environment variables of every command")
    submission: OrAbsent[Literal["printed"]] = Field(
        None,
        description="whether the patch is the output of the submitting command, and not the diff of the "
        "checkout",
    )


class PackageLimits(Recipe):
    """Limits for one command in the sandbox. If no wall time is given, the package's wall time is used."""

    wall_seconds: OrAbsent[float] = Field(None, gt=0, description="wall time of a command, in seconds")
    cpu_seconds: OrAbsent[int] = Field(None, ge=1, description="CPU time of a command, in seconds")
    memory_bytes: OrAbsent[int] = Field(None, ge=16777216, description="memory of the whole process tree")
    processes: OrAbsent[int] = Field(None, ge=4, description="maximum number of processes at the same time")
    output_bytes: OrAbsent[int] = Field(
        None,
        ge=256,
        description="maximum output of a command; of longer output the head and the tail are kept",
    )
    file_bytes: OrAbsent[int] = Field(None, ge=1024, description="maximum size of a file")


class MiniSwebenchScaffold(Recipe):
    """Mini-swe-agent with the benchmark settings of the installed package (docs/mini.md)."""

    agent: Literal["mini-swebench"]
    form: Literal["tool", "text"] = Field(
        "text",
        description="form of a command: tool: a call of the tool bash, as the package runs by default; text: "
        "one fenced block per turn",
    )
    other_fence: OrAbsent[Literal["bash"]] = Field(None, description=f"{OTHER_FENCE}; for form: text")
    step_limit: OrAbsent[int] = Field(
        None,
        ge=1,
        description="maximum number of model calls of a rollout; by default 250, as in the package",
    )
    cost_limit: OrAbsent[float] = Field(
        None,
        ge=0,
        description="maximum cost of a rollout in dollars, 0 for no limit; by default 3, as in the package",
    )
    wall_seconds: int = Field(
        0, ge=0, description="wall time of a rollout in seconds; 0 for no limit, as in the package"
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
        "the command that eval runs"
    )
    observation_template: str = Field(
        "{{output.output}}", description="jinja2 template of an observation; output.tool, output.output"
    )
    format_error_template: str = Field(
        "{{error}}",
        description="jinja2 template of the reply to a malformed turn; {{error}} describes the fault",
    )
    max_observation_chars: int = Field(
        10000,
        ge=100,
        description="maximum number of characters of an observation; of a longer one the head and the tail "
        "are kept",
    )
    step_limit: int = Field(80, ge=1, description="maximum number of model calls of a rollout")
    max_format_errors: int = Field(
        3, ge=1, description="number of malformed turns in a row after which the rollout ends"
    )
    wall_seconds: int = Field(5400, ge=1, description="wall time of a rollout, in seconds")
    cost_limit: float = Field(0.0, ge=0, description="maximum cost of a rollout in dollars; 0 for no limit")
    limits: Limits = Limits(wall_seconds=30)


class SweAgentScaffold(Recipe):
    """The program SWE-agent, which the user installs (docs/swe-agent.md)."""

    agent: Literal["swe-agent"]
    config: str = Field(
        min_length=1,
        description="path of a SWE-agent configuration; only its `agent` section is used, without the model",
    )
    call_limit: int = Field(
        75, ge=0, description="maximum number of model calls of an instance; 0 for no limit"
    )
    cost_limit: float = Field(
        0.0,
        ge=0,
        description="maximum cost of an instance in dollars, for a hosted model with a price in LiteLLM; a "
        "served model has no price, so the limit does not apply",
    )
    retries: int = Field(
        10, ge=1, description="number of failed calls in a row after which the model counts as lost"
    )
    docker_args: list[str] = Field(
        ["--memory=10g", "--pids-limit=4096"], description="options of docker run for every container"
    )
    python_standalone_dir: str = Field(
        "",
        description="empty if the images contain the program swerex-remote or may install it; a folder such "
        "as /root makes SWE-ReX build every image again with its own Python in that folder, "
        "which needs internet access",
    )
    port: int = Field(
        0,
        ge=0,
        le=65535,
        description="port of this machine that is forwarded to a container; 0 for a free port per container, "
        "8000 with --network=host and one worker",
    )
    startup_seconds: float = Field(
        180.0, gt=0, description="time in which a container's server must answer, in seconds"
    )
    start_delay: float = Field(
        0.3,
        ge=0,
        description="the instances of a batch start within this many seconds times the number of workers",
    )
    stall_seconds: float = Field(
        1800.0,
        gt=0,
        description="a batch without output for this many seconds counts as hanging and is ended; must "
        "exceed the timeouts of the configuration",
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
