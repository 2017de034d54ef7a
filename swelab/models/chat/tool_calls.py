"""Turns that call a tool instead of holding a fenced block: mini-swe-agent's one tool, `bash`.

A scaffold with `calls: bash` has them. What is asked, parsed and answered is that library's (version 2.4).
"""

from typing import Any

from jinja2 import StrictUndefined, Template
from minisweagent.exceptions import FormatError
from minisweagent.models.utils.actions_toolcall import BASH_TOOL, parse_toolcall_actions

from swelab.records import Record
from swelab.records.training_records import Called, ToolCall

OFFERED = {"tools": [BASH_TOOL], "parallel_tool_calls": True}
_NOT_RUN = {"output": "", "returncode": -1, "exception_info": "action was not executed"}


def plain_calls(calls: Any) -> list[ToolCall]:
    """The tool calls of a service's answer as records."""
    return [
        ToolCall(
            id=call.id,
            type="function",
            function=Called(name=call.function.name, arguments=call.function.arguments),
        )
        for call in calls or []
    ]


def parse_calls(calls: list[Record], template: str, finish_reason: str) -> list[Record]:
    """The commands of a turn, each with its `tool_call_id`. Raises FormatError (none, or no command)."""
    actions = parse_toolcall_actions(
        [ToolCall.of(call) for call in calls],
        format_error_template=template,
        template_kwargs={"finish_reason": finish_reason},
    )
    for action, call in zip(actions, calls, strict=True):
        if not isinstance(action["command"], str):
            said = Template(template, undefined=StrictUndefined).render(
                error=f"The command is a {type(action['command']).__name__}, not a text.",
                actions=[],
                has_tool_calls=True,
                finish_reason=finish_reason,
            )
            extra = {"interrupt_type": "FormatError", "tool_call": call}
            raise FormatError({"role": "user", "content": said, "extra": extra})
    return actions


def facts_of(output: Record, timed: bool) -> Record:
    """The fields of a command's output that a message keeps besides its text; `seconds` only if `timed`."""
    names = ("returncode", "exception_info", *(("seconds",) if timed else ()))
    return {name: output[name] for name in names if name in output}


def observations(
    message: Record, outputs: list[Record], template: str, variables: Record, timed: bool = True
) -> list[Record]:
    """A message of the role tool for every call of a turn."""
    actions = message["extra"]["actions"]
    seen = [*outputs, *[_NOT_RUN] * (len(actions) - len(outputs))]
    rendered = Template(template, undefined=StrictUndefined)
    return [
        {
            "role": "tool",
            "tool_call_id": action["tool_call_id"],
            "content": rendered.render(**variables, output=output),
            "extra": facts_of(output, timed),
        }
        for action, output in zip(actions, seen, strict=True)
    ]
