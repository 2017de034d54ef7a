"""The agent `debugger`: mini-swe-agent's loop over tools for files, tests and pdb."""

from functools import partial
from typing import Any

from swelab.agents.debugger.definitions import definitions
from swelab.agents.debugger.environment import DebuggerEnvironment
from swelab.agents.mini import run_rollout
from swelab.agents.mini_benchmark import PRELUDE
from swelab.configs.kinds.debugger_settings import DebuggerSettings
from swelab.configs.kinds.scaffold import DebuggerScaffold, MiniLoop
from swelab.models.chat.tool_form import ToolForm
from swelab.models.chat.turn_form import Form
from swelab.records.attempt_records import Rollout, is_refusal
from swelab.records.task_records import Task
from swelab.sandbox import Sandbox

NO_MARKER = "\n"
"""The marker in a command's output that submits the patch in other agents. No line of output can equal this
value, so no command submits."""
ENVIRONMENT = {"PYTHONDONTWRITEBYTECODE": "1"}


class Debugger:
    """See `agents.agent.Agent`."""

    def complete(self, scaffold: DebuggerScaffold) -> MiniLoop:
        """Converts the recipe to loop settings. The section `debugger` gets the settings that only this agent
        has."""
        given = scaffold.plain()
        own = {name: given.pop(name) for name in DebuggerSettings.model_fields if name in given}
        told: dict[str, Any] = {**given, "debugger": own, "action_regex": "", "submit_marker": NO_MARKER}
        return MiniLoop.model_validate(told | {"prelude": PRELUDE, "environment": ENVIRONMENT})

    def form(self, scaffold: MiniLoop) -> Form:
        """Returns the form for calls of the recipe's tools."""
        settings = scaffold.debugger or DebuggerSettings()
        return ToolForm(
            definitions(settings),
            settings.calls,
            observation_template=scaffold.observation_template,
            format_error_template=scaffold.format_error_template,
            max_observation_chars=scaffold.max_observation_chars,
        )

    def attempt(self, task: Task, model: Any, sandbox: Sandbox, base: str, scaffold: MiniLoop) -> Rollout:
        """See `run_rollout`. Takes the patch however the rollout ends, if the sandbox is still alive."""
        environment = partial(DebuggerEnvironment, task=task)
        record = run_rollout(task, model, sandbox, base, scaffold, environment=environment)
        record.info["debugger"]["malformed_turns"] = sum(map(is_refusal, record.messages))
        return record
