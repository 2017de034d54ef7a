"""Parses turns that call mini-swe-agent's only tool, `bash`, instead of containing a fenced block.

Scaffolds with `calls: bash` use this form. The tools in a request, the parsing and the replies are those of
mini-swe-agent 2.4.
"""

import json
import re
from typing import Any

from jinja2 import StrictUndefined, Template
from minisweagent.exceptions import FormatError
from minisweagent.models.utils.actions_toolcall import BASH_TOOL, parse_toolcall_actions

from swelab.models.chat.thoughts import CALL_BACK
from swelab.models.chat.turn_text import after_thoughts
from swelab.records import Record
from swelab.records.training_records import CalledFunction, ToolCall

OFFERED = {"tools": [BASH_TOOL], "parallel_tool_calls": True}
_CALL = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL)
_NOT_RUN = {"output": "", "returncode": -1, "exception_info": "action was not executed"}


def plain_calls(calls: Any) -> list[ToolCall]:
    """Returns the tool calls of a service's answer as records, with CALL_BACK."""
    records = []
    for call in calls or []:
        function = CalledFunction(name=call.function.name, arguments=call.function.arguments)
        back = json.loads(json.dumps(getattr(call, CALL_BACK, None), default=vars))
        record = ToolCall(id=call.id, type="function", function=function)
        records.append(record | {CALL_BACK: back} if back else record)
    return records


def parse_calls(calls: list[Record], template: str, finish_reason: str) -> list[Record]:
    """Returns the commands of a turn, each with its `tool_call_id`. Raises FormatError if there is no valid
    command."""
    actions = parse_toolcall_actions(
        [ToolCall.of(call) for call in calls],
        format_error_template=template,
        template_kwargs={"finish_reason": finish_reason},
    )
    for action, call in zip(actions, calls, strict=True):
        if not isinstance(action["command"], str):
            explanation = Template(template, undefined=StrictUndefined).render(
                error=f"The command is a {type(action['command']).__name__}, not a text.",
                actions=[],
                has_tool_calls=True,
                finish_reason=finish_reason,
            )
            extra = {"interrupt_type": "FormatError", "tool_call": call}
            raise FormatError({"role": "user", "content": explanation, "extra": extra})
    return actions


def facts_of(output: Record, timed: bool) -> Record:
    """Returns the fields of a command's output that a message has besides the text. `seconds` is included
    only if `timed`."""
    names = ("returncode", "exception_info", *(("seconds",) if timed else ()))
    return {name: output[name] for name in names if name in output}


def observations(
    message: Record, outputs: list[Record], template: str, variables: Record, timed: bool = True
) -> list[Record]:
    """Returns a message of role `tool` for every call of a turn."""
    actions = message["extra"]["actions"]
    results = [*outputs, *[_NOT_RUN] * (len(actions) - len(outputs))]
    rendered = Template(template, undefined=StrictUndefined)
    return [
        {
            "role": "tool",
            "tool_call_id": action["tool_call_id"],
            "content": rendered.render(**variables, output=output),
            "extra": facts_of(output, timed),
        }
        for action, output in zip(actions, results, strict=True)
    ]


def written_calls(text: str, turn: int) -> tuple[str, list[Record]]:
    """Returns (a turn's text without its `<tool_call>` blocks, the calls), in the JSON form of Qwen and
    Hermes.

    A block stays in the text if it is within thoughts, or is not a JSON object with a name and arguments.
    """
    calls: list[Record] = []
    answer = after_thoughts(text)
    thoughts = text[: len(text) - len(answer)]

    def take(match: re.Match[str]) -> str:
        call = _call(match[1], f"call_{turn}_{len(calls)}")
        calls.extend([call] if call else [])
        return "" if call else match[0]

    return (thoughts + _CALL.sub(take, answer)).strip() if "<tool_call>" in answer else text, calls


def last_written_call(text: str, turn: int) -> tuple[str, list[Record]]:
    """Returns (text before a turn's last `<tool_call>` block, [the call]), or (whole text, []) without a
    call.

    The block need not be closed. A block within thoughts, or one that is not a JSON call, does not count.
    """
    said = after_thoughts(text)
    before, found, inside = said.rpartition("<tool_call>")
    call = _call(inside.partition("</tool_call>")[0], f"call_{turn}_0") if found else None
    if not call:
        return text, []
    return (text[: len(text) - len(said)] + before).strip(), [call]


def _call(text: str, name: str) -> Record | None:
    try:
        said = json.loads(text)
        function, arguments = said["name"], said.get("arguments", {})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    given = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return {"id": name, "type": "function", "function": {"name": str(function), "arguments": given}}
