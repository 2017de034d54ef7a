"""The `mini` scaffold: mini-swe-agent's own DefaultAgent, with our model and sandbox protocols.

The agent loop, its limits and its trajectory format come from mini-swe-agent 2.4 (format
"mini-swe-agent-1.1"). This module adds a sandbox as the environment, and the rollout ends of
`swelab.outcomes`. At the end it takes the patch with git, and not from the model's output.
"""

import os
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("MSWEA_SILENT_STARTUP", "1")
os.environ.setdefault("MSWEA_GLOBAL_CONFIG_DIR", os.path.dirname(os.path.abspath(__file__)))

from minisweagent.agents.default import DefaultAgent  # noqa: E402
from minisweagent.exceptions import Submitted  # noqa: E402

from swelab.agents.exit_status import mini_end  # noqa: E402
from swelab.configs.kinds.scaffold import MiniLoop  # noqa: E402
from swelab.models import BudgetSpent, ContextLimit, ModelLost, ModelRefused  # noqa: E402
from swelab.models.chat.text_model import Settings  # noqa: E402
from swelab.models.chat.turn_form import Form, form_of  # noqa: E402
from swelab.outcomes import TRAINABLE_ROLLOUTS, RolloutEnd  # noqa: E402
from swelab.records import Record  # noqa: E402
from swelab.records.attempt_records import Message, Rollout  # noqa: E402
from swelab.records.task_records import Task  # noqa: E402
from swelab.sandbox import ExecResult, Limits, Sandbox, SandboxError, working_copy  # noqa: E402

FAULTS: dict[type[Exception], RolloutEnd] = {
    ContextLimit: RolloutEnd.CONTEXT_LIMIT,
    BudgetSpent: RolloutEnd.BUDGET_SPENT,
    ModelRefused: RolloutEnd.MODEL_REFUSED,
    ModelLost: RolloutEnd.MODEL_LOST,
    SandboxError: RolloutEnd.SANDBOX_LOST,
}
"""Maps an exception that the agent's loop raised to the end of the rollout. The first match counts."""


class SandboxEnvironment:
    """Implements mini-swe-agent's Environment protocol with a sandbox.

    A command ends the rollout if it exits with 0 and its output begins with the submit marker. The submission
    is the diff between `base` (a commit hash) and the working copy. With the scaffold's `submission:
    printed`, the submission is the command's output after the marker.
    """

    def __init__(self, sandbox: Sandbox, base: str, scaffold: MiniLoop):
        self.sandbox, self.base, self.scaffold = sandbox, base, scaffold
        self.limits = Limits(**scaffold.limits.plain())
        self.config = Settings()

    def execute(self, action: Record, cwd: str = "") -> Record:
        """Runs one command. Returns {"output", "returncode", "exception_info", "seconds"}. Raises Submitted,
        SandboxError."""
        command = action["command"]
        if self.scaffold.prelude:
            command = f"{self.scaffold.prelude}\n{command}"
        began = time.monotonic()
        result = self.sandbox.exec(command, env=self.scaffold.environment, limits=self.limits)
        seconds = round(time.monotonic() - began, 3)
        output = result.output.decode("utf-8", "replace")
        first_line = output.lstrip().partition("\n")[0].strip()
        if result.returncode == 0 and first_line == self.scaffold.submit_marker:
            patch = self.text_after_marker(result) if self.scaffold.submission == "printed" else self.diff()
            extra = {"exit_status": "Submitted", "submission": patch}
            raise Submitted({"role": "exit", "content": "", "extra": extra})
        stopped = result.limit not in ("", "output")
        bound = f"the command was stopped at its {result.limit} limit" if stopped else ""
        told = {"output": output, "returncode": result.returncode}
        return told | {"exception_info": bound, "seconds": seconds}

    @staticmethod
    def text_after_marker(result: ExecResult) -> str:
        """Returns the output after the marker line, byte for byte, or '' if the output was truncated."""
        text = result.output.decode("utf-8", "surrogateescape").lstrip()
        return "" if result.dropped_bytes else text.partition("\n")[2]

    def diff(self) -> str:
        """Returns the diff against the base commit, new files included. Raises SandboxError."""
        return working_copy.diff(self.sandbox, self.base)

    def get_template_vars(self, **kwargs: Any) -> Record:
        """Returns the variables of prompt templates: the given variables and no others."""
        return kwargs

    def unsubmitted_patch(self) -> str:
        """Returns the patch of a rollout that ended without a submission, which is '' in this class.
        Subclasses may raise SandboxError."""
        return ""

    def close(self) -> None:
        """Ends processes that are still running. Raises SandboxLost."""

    def serialize(self) -> Record:
        """Returns the name of the sandbox protocol, in mini-swe-agent's layout."""
        # The backend is a setting, not a part of the result.
        return {"info": {"config": {"environment_type": "swelab.sandbox.Sandbox"}}}


class Mini:
    """See `agent.Agent`."""

    def complete(self, scaffold: Any) -> MiniLoop:
        """Returns the recipe's settings unchanged."""
        return MiniLoop.model_validate(scaffold.plain())

    def form(self, scaffold: MiniLoop) -> Form:
        """Returns the form of turns: one fenced command per turn, or tool calls with `calls: bash`."""
        return form_of(scaffold)

    def attempt(self, task: Task, model: Any, sandbox: Sandbox, base: str, scaffold: MiniLoop) -> Rollout:
        """See `run_rollout`."""
        return run_rollout(task, model, sandbox, base, scaffold)


def run_rollout(
    task: Task,
    model: Any,
    sandbox: Sandbox,
    base: str,
    scaffold: MiniLoop,
    environment: Callable[[Sandbox, str, MiniLoop], SandboxEnvironment] = SandboxEnvironment,
) -> Rollout:
    """Lets a policy attempt a task, and returns the rollout.

    model: follows mini-swe-agent's Model protocol. sandbox: contains the checkout, whose only commit is
    `base`. environment: makes the object that runs the actions. Losses of infrastructure are returned as the
    outcomes sandbox_lost and model_lost, a service's refusal of the task as model_refused, and a spent budget
    as budget_spent. Model output never raises an error.
    """
    place = environment(sandbox, base, scaffold)
    agent = DefaultAgent(
        model,
        place,
        system_template=scaffold.system_template,
        instance_template=scaffold.instance_template,
        step_limit=scaffold.step_limit,
        cost_limit=scaffold.cost_limit,
        wall_time_limit_seconds=scaffold.wall_seconds,
        max_consecutive_format_errors=scaffold.max_format_errors,
    )
    end, reason, patch = None, "", ""

    def wait(seconds: float) -> None:
        agent._start_time += seconds

    model.on_wait = wait
    try:
        agent.run(task.problem_statement)
    except tuple(FAULTS) as error:
        end, reason = _fault(error)
    try:
        place.close()
        patch = "" if end and end not in TRAINABLE_ROLLOUTS else place.unsubmitted_patch()
    except SandboxError as error:
        end, reason = _fault(error)
    record = trajectory(task, agent, end)
    if record.outcome in TRAINABLE_ROLLOUTS and record.outcome != RolloutEnd.SUBMITTED:
        record["model_patch"] = patch
    if record.outcome == RolloutEnd.MALFORMED and (cut := _cut_turn(record.messages)):
        reason = f"{cut}; raise max_tokens of the policy's sampling"
    if reason:
        record.info["reason"] = reason
    return record


def _cut_turn(messages: list[Message]) -> str:
    """Returns the note on the last turn if it used up its tokens in thoughts, otherwise ''."""
    turns = [message for message in messages if message.role == "assistant"]
    return str((turns[-1].get("extra") or {}).get("cut", "")) if turns else ""


def _fault(error: Exception) -> tuple[RolloutEnd, str]:
    end = next(end for kind, end in FAULTS.items() if isinstance(error, kind))
    return end, "" if end in TRAINABLE_ROLLOUTS else str(error)


def trajectory(task: Task, agent: DefaultAgent, end: RolloutEnd | None = None) -> Rollout:
    """Converts the agent's record to ours, without the library's tracebacks. end: the rollout's end. If it is
    None, the end follows from the agent's record."""
    saved = agent.serialize()
    end = end or mini_end(saved["info"])
    for message in saved["messages"]:
        message.get("extra", {}).pop("traceback", None)
    return Rollout(
        instance_id=task.instance_id,
        outcome=end,
        model_patch=saved["info"]["submission"] if end == RolloutEnd.SUBMITTED else "",
        messages=[Message.of(message) for message in saved["messages"]],
        info=saved["info"],
        trajectory_format=saved["trajectory_format"],
    )
