"""Reads a recorded conversation as turns with text, tool calls and faults.

SWE-agent records an action as a tool call or as text. It also records the line that its shell ran.
mini-swe-agent records a tool call or the command that it took from the text. `styles` can write turns of
either program.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from swelab.records import Record
from swelab.records.attempt_records import Message, Rollout, is_refusal
from swelab.rollouts.recorded_actions import text_and_commands
from swelab.rollouts.recorded_thoughts import thoughts_of
from swelab.sft.rows.failed_turns import failed_turns
from swelab.sft.rows.student_parsers import parse_xml, read_call, read_line


@dataclass(frozen=True)
class Call:
    """One tool call. arguments: None if not a JSON object. id: '' if the call was in the text."""

    name: str
    arguments: Record | None
    id: str = ""


@dataclass
class Turn:
    """One message. text: the message's text, without the action. action: the shell line that ran, if known.

    answers: for an observation, the id of its tool call. fault: why the turn is malformed, or ''.
    demonstration: whether the turn is an example in the prompt. failed: whether the action was not carried
    out. thoughts: the thoughts that the record has beside the text.
    """

    role: str
    text: Any
    calls: list[Call] = field(default_factory=list)
    action: str = ""
    answers: str = ""
    fault: str = ""
    demonstration: bool = False
    failed: bool = False
    thoughts: str = ""


def turns_of(trajectory: Rollout) -> list[Turn]:
    """Returns the turns of a trajectory up to the last assistant turn, without the message `exit`."""
    read = READERS.get(trajectory.trajectory_format, _mini)
    messages = [message for message in trajectory.messages if message.role != "exit"]
    turns, failed = [], failed_turns(messages)
    for number, message in enumerate(messages):
        if message.role != "assistant":
            said = message.get("content")
            answers = message.get("tool_call_id", "") if message.role == "tool" else ""
            turns.append(Turn(message.role, said, answers=answers))
        else:
            refused = messages[number + 1 : number + 2]
            turns.append(read(message, bool(refused) and is_refusal(refused[0])))
            turns[-1].thoughts = thoughts_of(message)
        turns[-1].demonstration = bool((message.get("extra") or {}).get("demonstration"))
        turns[-1].failed = number in failed
    while turns and turns[-1].role != "assistant":
        turns.pop()
    return turns


def _calls(message: Message) -> Iterator[Call]:
    for call in message.get("tool_calls") or ():
        function = call["function"]
        try:
            arguments = json.loads(function.get("arguments") or "{}")
        except (ValueError, RecursionError):
            arguments = None
        arguments = arguments if isinstance(arguments, dict) else None
        yield Call(function["name"], arguments, str(call.get("id") or ""))


def _fault(calls: list[Call], refused: bool, most: int) -> str:
    if refused:
        return "refused"
    if not calls:
        return "no_call"
    if len(calls) > most:
        return "several_calls"
    return "bad_arguments" if any(call.arguments is None for call in calls) else ""


def _swe_agent(message: Message, refused: bool) -> Turn:
    """Reads a turn of SWE-agent, which runs one call per turn and omits refused turns from its history."""
    calls, action = list(_calls(message)), message.get("action") or ""
    said = message.get("thought", message.content)
    if not calls and action.strip():
        calls = [_from_text(message.content, action)]
    return Turn("assistant", said, calls, action, fault=_fault(calls, refused, 1))


def _from_text(content: Any, action: str) -> Call:
    """Returns the call in the text.
    If the text has no call, makes a call of `bash` or `submit` from the shell line."""
    written = parse_xml(content) if isinstance(content, str) else None
    if written:
        return Call(written.name, written.arguments)
    line = action.strip("\n")
    return Call("submit", {}) if line.strip() == "submit" else Call("bash", {"command": line})


def _text(message: Message, refused: bool) -> Turn:
    """Reads a turn of a published row in the style xml or ticks.
    refused: whether SWE-agent refused the turn."""
    content = message.content
    if not isinstance(content, str):
        return Turn("assistant", content, fault="no_call")
    if written := read_call(content):
        said, name, arguments = written
        line = arguments.get("command") if name == "bash" else "submit" if name == "submit" else ""
        return Turn("assistant", said, [Call(name, arguments)], line if isinstance(line, str) else "")
    said, action = read_line(content) or (content, "")
    calls = [_from_text("", action)] if action.strip() else []
    return Turn("assistant", said, calls, action, fault=_fault(calls, refused, 1))


def _mini(message: Message, refused: bool) -> Turn:
    calls, content = list(_calls(message)), message.get("content")
    if calls:
        lines = [call.arguments.get("command") for call in calls if call.arguments]
        action = "\n".join(line for line in lines if isinstance(line, str))
        text = "" if content is None else content
        return Turn("assistant", text, calls, action, fault=_fault(calls, refused, len(calls)))
    if not isinstance(content, str):
        return Turn("assistant", content, fault="no_call")
    if (written := parse_xml(content)) and not refused and _tool_of(message) == written.name:
        return Turn("assistant", written.text, [Call(written.name, _typed_arguments(message))])
    text, commands = text_and_commands(content, message)
    calls = [Call("bash", {"command": command}) for command in commands]
    return Turn("assistant", text, calls, "\n".join(commands), fault=_fault(calls, refused, 1))


def _typed_arguments(message: Message) -> Record:
    """Returns the recorded arguments of a turn's first action. They still have their types."""
    found: Record = message["extra"]["actions"][0]["arguments"]
    return found


def _tool_of(message: Message) -> str:
    """Returns the tool that a turn's first action names, or ''."""
    actions = (message.get("extra") or {}).get("actions") or [{}]
    return str(actions[0].get("tool", ""))


READERS = {"swe-agent": _swe_agent, "swe-agent-text": _text}
"""Maps a trajectory format to the reader of an assistant's message. `_mini` reads all other formats."""
