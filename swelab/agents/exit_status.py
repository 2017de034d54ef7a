"""Maps the `exit_status` of mini-swe-agent or SWE-agent to the end of a rollout.

Live and recorded runs use the same functions. Each program has a single status for its limits on steps and on
cost. Which limit was reached follows from the figures of the run.
"""

import re
from typing import Any

from swelab.models.service_words import Kind, judge_text
from swelab.outcomes import LOST_ROLLOUTS, RolloutEnd
from swelab.records import Record

MINI = {
    "Submitted": RolloutEnd.SUBMITTED,
    "LimitsExceeded": RolloutEnd.STEP_LIMIT,
    "TimeExceeded": RolloutEnd.TIME_LIMIT,
    "RepeatedFormatError": RolloutEnd.MALFORMED,
    "ContextWindowExceededError": RolloutEnd.CONTEXT_LIMIT,
    "ContextLimit": RolloutEnd.CONTEXT_LIMIT,
    "ModelRefused": RolloutEnd.MODEL_REFUSED,
    "SandboxError": RolloutEnd.SANDBOX_LOST,
    "SandboxLost": RolloutEnd.SANDBOX_LOST,
    "CalledProcessError": RolloutEnd.SANDBOX_LOST,
    "TimeoutExpired": RolloutEnd.SANDBOX_LOST,
}
"""Maps statuses of mini-swe-agent, and names of our errors, to ends. Any other status is the name of an error
in the model's client."""
SWE_AGENT = {
    "submitted": RolloutEnd.SUBMITTED,
    "exit_forfeit": RolloutEnd.SUBMITTED,
    "exit_command": RolloutEnd.SUBMITTED,
    "exit_cost": RolloutEnd.COST_LIMIT,
    "exit_context": RolloutEnd.CONTEXT_LIMIT,
    "exit_format": RolloutEnd.MALFORMED,
    "exit_total_execution_time": RolloutEnd.TIME_LIMIT,
    "exit_command_timeout": RolloutEnd.TIME_LIMIT,
    "exit_api": RolloutEnd.MODEL_LOST,
    "exit_environment_error": RolloutEnd.SANDBOX_LOST,
    "exit_error": RolloutEnd.SANDBOX_LOST,
}
"""Maps statuses of SWE-agent to ends. Both forfeiting and submitting end the run with the current patch."""
_REFUSALS = {Kind.OVERFLOWED: RolloutEnd.CONTEXT_LIMIT, Kind.FILTERED: RolloutEnd.MODEL_REFUSED}
"""Maps kinds of refusals to ends. (A text that no row of the table knows is read as the kind `stuck`.)"""
_AUTOSUBMITTED = re.compile(r"submitted \((\w+)\)")


def mini_end(info: Record) -> RolloutEnd:
    """Returns the end of a mini-swe-agent run, from the `info` of its trajectory."""
    status = info["exit_status"]
    if status not in MINI:
        return _REFUSALS.get(judge_text(f"{status}: {_last_words(info)}"), RolloutEnd.MODEL_LOST)
    end = MINI[status]
    if end != RolloutEnd.STEP_LIMIT:
        return end
    limits = _part(info, "config", "agent")
    return _limit_met(info, limits.get("step_limit"), limits.get("cost_limit"), end)


def swe_agent_end(info: Record, settings: Any, patch: str, last_words: str) -> RolloutEnd | None:
    """Returns the end of a SWE-agent run, or None if the run has not ended.

    info: the trajectory's `info`. settings: the trajectory's `replay_config`. last_words: the program's last
    message. If a limit made SWE-agent submit the current patch, the end is that limit. If the loss of the
    service made SWE-agent submit, the end is `submitted`. SWE-agent does not recognise every server's message
    about a full context, so this function searches `last_words` for such messages.
    """
    status = info.get("exit_status")
    by_itself = _AUTOSUBMITTED.fullmatch(status or "")
    reason = by_itself[1] if by_itself else status or ""
    end = SWE_AGENT.get(reason)
    if end == RolloutEnd.COST_LIMIT:
        model = _part(settings, "agent", "model")
        limits = (model.get("per_instance_call_limit"), model.get("per_instance_cost_limit"))
        return _limit_met(info, *limits, end)
    if reason == "exit_error":
        end = RolloutEnd.MODEL_LOST if "litellm." in last_words else end
    if end in (RolloutEnd.MODEL_LOST, RolloutEnd.SANDBOX_LOST) and reason in ("exit_error", "exit_api"):
        end = _REFUSALS.get(judge_text(last_words), end)
    return RolloutEnd.SUBMITTED if by_itself and patch and end in LOST_ROLLOUTS else end


def _limit_met(info: Record, step_limit: Any, cost_limit: Any, usual: RolloutEnd) -> RolloutEnd:
    """Returns the limit that a run reached, or `usual` if the run's cost and calls are below both limits. A
    limit of 0 means no limit."""
    spent = _part(info, "model_stats")
    if 0 < _number(cost_limit) <= _number(spent.get("instance_cost")):
        return RolloutEnd.COST_LIMIT
    if 0 < _number(step_limit) <= _number(spent.get("api_calls")):
        return RolloutEnd.STEP_LIMIT
    return usual


def _last_words(info: Record) -> str:
    """Returns the text of the exception that ended a run. Some versions record only its traceback."""
    said = info.get("exception_str") or str(info.get("traceback") or "").strip().rpartition("\n")[2]
    return str(said)


def _part(record: Any, *names: str) -> Record:
    """Returns the object at the path `names`, or {} if there is none."""
    for name in names:
        record = record.get(name) if isinstance(record, dict) else None
    return record if isinstance(record, dict) else {}


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) else 0.0
