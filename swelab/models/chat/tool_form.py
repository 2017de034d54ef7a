"""Parses turns that call one of several tools, by JSON or XML in the text or by the API's tool calls."""

import json
import re
from collections.abc import Sequence

from jinja2 import StrictUndefined, Template
from minisweagent.exceptions import FormatError

from swelab.models.chat.tool_calls import facts_of, last_written_call
from swelab.models.chat.turn_text import after_thoughts, argument_text, truncate
from swelab.records import Record, shorten

_FUNCTION = re.compile(r"<function=([^>\s]*)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]*)>(.*?)</parameter>", re.DOTALL)
_KINDS = {"string": str, "integer": int, "boolean": bool, "number": float}
_NOT_RUN = {"output": "This call was not carried out.", "returncode": -1, "tool": ""}
_NONE = ("null", "None", "none", "")


class ToolForm:
    """Calls of tools that are defined as in the chat-completion API; see `turn_form.Form`. Only a turn's last
    call is run. With `api`, all calls are run, in order. calls: a value of `choices.CALL_FORMS`."""

    def __init__(
        self,
        tools: Sequence[Record],
        calls: str,
        *,
        observation_template: str,
        format_error_template: str,
        max_observation_chars: int,
    ) -> None:
        self.tools = list(tools)
        self.calls, self.in_text = calls != "xml", calls == "qwen"
        self.offered: Record = {} if calls == "xml" else {"tools": self.tools}
        self._form = calls
        self._shown = Template(observation_template, undefined=StrictUndefined)
        self._refusal = Template(format_error_template, undefined=StrictUndefined)
        self._most = max_observation_chars

    def read(self, content: str, turn: int) -> tuple[str, list[Record]]:
        """Splits a turn's text at its last call: (text before it, [call]), or (whole text, []) without a
        call."""
        return last_written_call(content, turn)

    def format_call(self, thought: str, name: str, arguments: Record, turn: int) -> tuple[str, list[Record]]:
        """Formats a turn with one call for `TextModel.reply`. Returns (text, calls)."""
        if self._form == "xml":
            told = [(key, argument_text(value)) for key, value in arguments.items()]
            lines = [f"<parameter={key}>\n{text}\n</parameter>" for key, text in told]
            call = "\n".join([f"<function={name}>", *lines, "</function>"])
            return f"{thought}\n\n{call}".strip(), []
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        return thought, [{"id": f"call_{turn}_0", "type": "function", "function": function}]

    def parse(self, content: str, calls: list[Record], finish_reason: str) -> list[Record]:
        """Returns the actions {"tool", "arguments", "command", "tool_call_id"}. Raises FormatError with an
        explanation."""
        if self._form == "xml":
            return [self._of_text(content, finish_reason)]
        if not calls:
            raise self._error(self._why_none(content), finish_reason)
        return [self._of_call(call, finish_reason) for call in calls]

    def show(self, message: Record, outputs: list[Record], variables: Record, timed: bool) -> list[Record]:
        """Returns one message for each action, with role `tool`, or with role `user` for XML."""
        actions = message["extra"]["actions"]
        seen = [*outputs, *[_NOT_RUN] * (len(actions) - len(outputs))]
        shown = []
        for action, output in zip(actions, seen, strict=True):
            told = {**output, "tool": action["tool"], "output": truncate(output["output"], self._most)}
            text = self._shown.render(**variables, output=told)
            extra = facts_of(output, timed)
            if self.calls:
                answers = {"role": "tool", "tool_call_id": action["tool_call_id"]}
                shown.append({**answers, "content": text, "extra": extra})
            else:
                shown.append({"role": "user", "content": text, "extra": extra})
        return shown

    def _of_call(self, call: Record, finish_reason: str) -> Record:
        name, text = call["function"]["name"], call["function"]["arguments"]
        try:
            arguments = json.loads(text or "{}")
        except (ValueError, RecursionError) as error:
            raise self._error(f"the arguments of {name!r} are no JSON: {error}", finish_reason) from None
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict):
            raise self._error(f"the arguments of {name!r} are no JSON object", finish_reason)
        return self._action(name, arguments, finish_reason) | {"tool_call_id": call.get("id", "")}

    def _of_text(self, content: str, finish_reason: str) -> Record:
        found = _FUNCTION.findall(after_thoughts(content))
        if not found:
            raise self._error("no <function=NAME> in the answer", finish_reason)
        name, inside = found[-1]
        arguments = {
            key: value.removeprefix("\n").removesuffix("\n") for key, value in _PARAMETER.findall(inside)
        }
        return self._action(name, arguments, finish_reason)

    def _why_none(self, content: str) -> str:
        said = after_thoughts(content)
        _, found, inside = said.rpartition("<tool_call>")
        if self._form == "api" or not found:
            return "no tool was called"
        try:
            given = json.loads(inside.partition("</tool_call>")[0])
        except (ValueError, RecursionError) as error:
            return f"what stands in <tool_call> is no JSON: {error}"
        kind = type(given).__name__
        return f"what stands in <tool_call> is no object with the keys name and arguments, but a {kind}"

    def _action(self, name: str, given: Record, finish_reason: str) -> Record:
        tool = next((each["function"] for each in self.tools if each["function"]["name"] == name), None)
        if tool is None:
            names = ", ".join(each["function"]["name"] for each in self.tools)
            raise self._error(f"no tool is called {shorten(name)!r}; there are {names}", finish_reason)
        properties, arguments = tool["parameters"]["properties"], Record()
        for key, value in given.items():
            if key not in properties:
                raise self._error(f"{name} has no argument {shorten(key)!r}; {_takes(tool)}", finish_reason)
            kind = properties[key]["type"]
            converted = _convert(value, kind)
            if converted is None:
                continue
            if type(converted) is not _KINDS[kind]:
                told = f"{name}: {key} is {shorten(repr(value))}; expected {kind}"
                raise self._error(f"{told}. {_takes(tool)}", finish_reason)
            if converted not in properties[key].get("enum", [converted]):
                names = " or ".join(properties[key]["enum"])
                raise self._error(f"{name}: {key} is {shorten(repr(value))}; expected {names}", finish_reason)
            arguments[key] = converted
        missing = [key for key in tool["parameters"]["required"] if key not in arguments]
        if missing:
            raise self._error(f"{name} wants {' and '.join(missing)}; {_takes(tool)}", finish_reason)
        return {"tool": name, "arguments": arguments, "command": as_command(name, arguments)}

    def _error(self, why: str, finish_reason: str) -> FormatError:
        cut_off = " The answer was cut off at its limit of tokens." if finish_reason == "length" else ""
        error = f"Nothing was done: {why}.{cut_off}\n{self._example()}"
        text = self._refusal.render(error=error, finish_reason=finish_reason)
        return FormatError({"role": "user", "content": text, "extra": {"interrupt_type": "FormatError"}})

    def _example(self) -> str:
        name = self.tools[0]["function"]["name"]
        needed = self.tools[0]["function"]["parameters"]["required"]
        if self._form == "api":
            return f"Call one tool, such as {name}."
        if self._form == "xml":
            lines = [f"<parameter={key}>\nVALUE\n</parameter>" for key in needed]
            return "\n".join(["Call one tool like this:", f"<function={name}>", *lines, "</function>"])
        call = json.dumps({"name": name, "arguments": dict.fromkeys(needed, "VALUE")})
        return f"Call one tool like this:\n<tool_call>\n{call}\n</tool_call>"


def as_command(name: str, arguments: Record) -> str:
    """Formats a call for people: the command for pdb or the shell, or the tool and its arguments.

    New code follows on the next lines.

    >>> as_command("view", {"path": "a.py", "start": 3})
    'view a.py start=3'
    """
    first = {"pdb": "command", "bash": "command", "view": "path", "rewrite": "path", "grep": "pattern"}
    head = [str(arguments[first[name]])] if first.get(name) in arguments else []
    rest = [(key, str(value)) for key, value in arguments.items() if key != first.get(name)]
    line = " ".join([name, *head, *(f"{key}={value}" for key, value in rest if key != "new_code")])
    return "\n".join([line, *(value.removesuffix("\n") for key, value in rest if key == "new_code")])


def _takes(tool: Record) -> str:
    needed, properties = tool["parameters"]["required"], tool["parameters"]["properties"]
    said = [
        f"{key} ({told['type']}{'' if key in needed else ', optional'})" for key, told in properties.items()
    ]
    return f"{tool['name']} takes {', '.join(said) or 'no arguments'}"


def _convert(value: object, kind: str) -> object:
    """Converts a value to the argument's type if that is unambiguous. Returns None for an absent value."""
    if kind in ("integer", "boolean") and isinstance(value, str):
        text = value.strip()
        if text in _NONE:
            return None
        if kind == "integer":
            return int(text) if re.fullmatch(r"-?\d{1,18}", text) else value
        return {"true": True, "false": False}.get(text.lower(), value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return value
