"""Writes conversations that any scaffold recorded, in the format of the student's scaffold.

The student is the model to train. The style `text` keeps the recorded text. Other styles write each action
anew: `xml` as a function call in SWE-agent's XML, `ticks` as a fenced shell command, `tool` as a tool call.
Actions in `xml` and `ticks` are parsed with the parser of the student's scaffold. A turn is malformed if the
parser returns another action, or if the tool definitions do not allow the call. A turn is also malformed if
the scaffold that recorded the turn refused it.

SWE-agent's XML parser refuses the -1 in view_range [n, -1], which shows a file from line n to its end. The
observation contains the number of the last line. With that number in place of -1, the editor shows the same
lines.

SWE-agent records an action as a tool call or as text, and the line that its shell ran. mini-swe-agent records
a tool call or the command that it took from the text. Turns of either program can be written.

A turn failed if SWE-agent's tools or bash refused its action, or if mini-swe-agent records an exception or
one of a few exit codes. A command that ran a failing test has not failed.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from swelab.choices import ROW_STYLES, values_with_code
from swelab.models.chat.turn_text import after_thoughts, argument_text
from swelab.records import SHIPPED_CONFIGS, InputError, Record, read_json
from swelab.records.attempt_records import Message, Rollout, is_refusal
from swelab.records.training_records import CalledFunction, RowMessage, Tool, ToolCall
from swelab.rollouts.recorded_actions import text_and_commands
from swelab.rollouts.recorded_thoughts import thoughts_of
from swelab.sft.rows import compat
from swelab.sft.rows.lengths import is_trained
from swelab.sft.rows.student_parsers import (
    OWN_LINES,
    is_plain,
    parse_ticks,
    parse_xml,
    read_call,
    read_line,
    write_argument,
)

NOT_RUN = (126, 127, -1)
"""Exit codes of a command that is not executable, was not found, or was killed by the environment."""
REFUSALS = (
    r"No replacement was performed",
    r"Invalid `\w+`",
    r"Parameter `\w+` is required",
    r"The `view_range` parameter is not",
    r"The path .* (does not exist|is a directory and only)",
    r"The parent directory .* does not exist",
    r"File already exists at",
    r"Unrecognized command",
    r"No edit history found",
    r"Ran into .* while trying to",
    r"Your proposed edit has introduced new syntax error",
    r"The command '(?s:.{0,20000}?)' was cancelled because it took more than",
    r"(/bin/)?(bash|sh): .*(command not found|syntax error|No such file or directory|Permission denied)",
)
BEFORE = r"OBSERVATION:\s*|exit \d+\n|<returncode>\d+</returncode>\s*<output>\s*"
"""What the scaffolds' observations begin with, before a command's output."""
REFUSED = re.compile(rf"({BEFORE})?({'|'.join(REFUSALS)})")


def failed_turns(messages: Sequence[Message]) -> set[int]:
    """Returns the indexes in `messages` of assistant messages whose actions were not carried out."""
    turns = set()
    last = -1
    for number, message in enumerate(messages):
        if message.role == "assistant":
            last = number
        elif last >= 0 and _says_so(message):
            turns.add(last)
    return turns


def _says_so(message: Message) -> bool:
    extra, content = message.get("extra") or {}, message.get("content")
    if extra.get("exception_info") or extra.get("returncode") in NOT_RUN:
        return True
    return isinstance(content, str) and bool(REFUSED.match(content))


Thoughts = Literal["keep", "last", "drop"] | None


def choose_thoughts(messages: list[RowMessage], thoughts: Thoughts) -> None:
    """Removes the thoughts that are not trained from messages, in place.

    thoughts: "keep" keeps the thoughts of all turns, "last" those of the last trained turn, and "drop" none.
    None removes only thoughts that stand beside the text. A turn of which nothing is left gets the weight 0.
    """
    last = max((number for number, each in enumerate(messages) if is_trained(each)), default=-1)
    for number, message in enumerate(messages):
        if message.role != "assistant" or thoughts == "keep" or (thoughts == "last" and number == last):
            continue
        message.pop("reasoning_content", None)
        said = message.content if thoughts is None else after_thoughts(message.content)
        if said != message.content:
            message |= {"content": said.strip()}
            if not message.content and not message.tool_calls:
                message |= {"weight": 0}


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


HEADER = re.compile(r"Here's the result of running `cat -n` on [^\n]*:\n")
NUMBER = re.compile(r" *(\d+)(?:\t|$)")
CUT = ("<response clipped>", "characters were elided")


def complete(calls: Sequence[Call], answer: object) -> list[Call] | None:
    """Returns the calls with -1 replaced by the number of the last line in `answer`.
    Returns None if there is nothing to replace, or if `answer` does not show all lines to the end."""
    ranges = [call.arguments.get("view_range") for call in calls if call.arguments]
    if len(calls) != 1 or not ranges or not (isinstance(ranges[0], list) and ranges[0][1:] == [-1]):
        return None
    last = last_line(answer, ranges[0][0]) if isinstance(answer, str) else 0
    if not last:
        return None
    return [replace(calls[0], arguments={**(calls[0].arguments or {}), "view_range": [ranges[0][0], last]})]


def last_line(answer: str, first: object) -> int:
    """Returns a file's last line number if `answer` shows the file from line `first` to its end, else 0."""
    header = HEADER.search(answer)
    if not header or any(mark in answer for mark in CUT):
        return 0
    found = [NUMBER.match(line) for line in answer[header.end() :].rstrip("\n").split("\n")]
    numbers = [int(match[1]) for match in found if match]
    whole = len(numbers) == len(found) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    return numbers[-1] if whole and numbers[0] == first else 0


TOOLS = SHIPPED_CONFIGS / "tools"
DEFINED = {
    "swe-agent": "swe-agent.json",
    "swe-agent-text": "swe-agent.json",
    "mini-swe-agent-1": "mini.json",
    "mini-swe-agent-1.1": "mini.json",
    "atif": "mini.json",
}


class Unfit(Exception):
    """Raised for a conversation that cannot become a row.
    The message is the reason under which the conversation is counted. where: the part that does not fit."""

    def __init__(self, reason: str, where: str = ""):
        super().__init__(reason)
        self.where = where


@dataclass(frozen=True)
class Style:
    """Settings for writing rows. tools: tool definitions.
    system: a system prompt to use instead of the recorded one. '' keeps the recorded one."""

    name: str
    malformed_turns: str = "drop"
    system: str = ""
    tools: list[Tool] = field(default_factory=list)
    failed_turns: str = "learn"

    @property
    def form(self) -> "RowStyle":
        """The entry of the style's name."""
        found: RowStyle = ROW_STYLES[self.name].load()
        return found


@dataclass
class Conversation:
    """The messages of a row, the tools offered in it, and counts of changes to the messages."""

    messages: list[RowMessage]
    tools: list[Tool] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)


def write_conversation(trajectory: Rollout, style: Style, thoughts: Thoughts = None) -> Conversation:
    """Writes a trajectory's conversation in a style. Raises Unfit with the reason if that is impossible.
    thoughts: the recipe's `rows.thoughts`.

    If a turn is malformed, `style.malformed_turns` is applied. "drop" raises Unfit. "mask" gives the turn the
    weight 0 (no loss). Any other value keeps the turn.
    """
    turns = turns_of(trajectory)
    if not turns:
        raise Unfit("no_assistant_turn")
    if any(not isinstance(turn.text, str | None) for turn in turns):
        raise Unfit("not_plain_text")
    written = Conversation([])
    tools = style.tools or _offered_tools(trajectory) or _own_tools(trajectory.trajectory_format)
    if style.form.offers_tools:
        written.tools = tools
    if style.form.whole_ranges:
        _complete_ranges(turns, written.notes)
    if style.system and turns[0].role != "system":
        turns.insert(0, Turn("system", ""))
    for turn in turns:
        _add(written, turn, style, tools)
    choose_thoughts(written.messages, thoughts)
    while written.messages and not is_trained(written.messages[-1]):
        written.messages.pop()
    if not written.messages:
        raise Unfit("nothing_to_learn")
    if next(m.role for m in written.messages if m.role != "system") != "user":
        raise Unfit("begins_with_the_policy")
    return written


def _offered_tools(trajectory: Rollout) -> list[Tool]:
    """Returns the tools that a trajectory offered to the model, or [] if it does not record them."""
    config = trajectory.info.get("config")
    found = config.get("tools") if isinstance(config, dict) else None
    return checked_tools(found) or [] if found else []


@cache
def _own_tools(trajectory_format: str) -> list[Tool]:
    """Returns the definitions of the recording program's default tools."""
    return definitions(TOOLS / DEFINED[trajectory_format])


def definitions(path: Path) -> list[Tool]:
    """Reads tool definitions in the chat-completion API's form. Raises InputError."""
    if tools := checked_tools(read_json(path)):
        return tools
    raise InputError("not tool definitions", path, "a list of {type: function, function: {name, parameters}}")


def checked_tools(value: Any) -> list[Tool] | None:
    """Returns tool definitions in the chat-completion API's form, or None if `value` has another form."""
    try:
        tools = [Tool.of(tool) for tool in value]
        if tools and all(isinstance(tool.function.parameters["properties"], dict) for tool in tools):
            return tools
    except (TypeError, KeyError, ValueError):
        pass
    return None


def _complete_ranges(turns: list[Turn], notes: Counter[str]) -> None:
    """Replaces view_range [n, -1] by the range that the observation shows.
    The student's parser refuses -1."""
    for turn, answer in zip(turns, turns[1:]):
        if turn.role == "assistant" and (calls := complete(turn.calls, answer.text)):
            turn.calls = calls
            notes["view_range_completed"] += 1


def _add(written: Conversation, turn: Turn, style: Style, tools: list[Tool]) -> None:
    """Appends a turn. Consecutive turns of the user are joined, because roles must alternate."""
    messages = written.messages
    last = messages[-1].role if messages else ""
    if turn.role == "assistant":
        if last == "assistant":
            raise Unfit("two_turns_of_the_policy")
        messages.append(_assistant(turn, style, written, tools))
    elif turn.role == "system":
        if messages:
            raise Unfit("system_prompt_inside")
        messages.append(RowMessage(role="system", content=style.system or turn.text or ""))
    elif style.form.offers_tools and (answers := _answers(turn, messages)):
        messages.append(RowMessage(role="tool", tool_call_id=answers, content=turn.text or ""))
    elif last == "user":
        messages[-1] |= {"content": f"{messages[-1].content}\n\n{turn.text or ''}"}
        written.notes["user_turns_joined"] += 1
    else:
        messages.append(RowMessage(role="user", content=turn.text or ""))


def _answers(turn: Turn, messages: list[RowMessage]) -> str:
    """Returns the id of the call that an observation answers.
    This is the call that the observation names, or else the first unanswered call."""
    last = [m for m in messages if m.role == "assistant"][-1:]
    done = 0
    for message in reversed(messages):
        if message.role == "assistant":
            break
        done += message.role == "tool"
    waiting = [call.id for message in last for call in message.tool_calls]
    return turn.answers if turn.answers in waiting else "".join(waiting[done : done + 1])


def _assistant(turn: Turn, style: Style, written: Conversation, tools: list[Tool]) -> RowMessage:
    message, fault = style.form.write(turn, len(written.messages), tools)
    fault = turn.fault or fault
    if fault and not turn.demonstration:
        if style.malformed_turns == "drop":
            names = ", ".join(call.name for call in turn.calls)
            where = f"message {len(written.messages)}" + (f" calls {names}" if names else "")
            raise Unfit("malformed_turn" if fault == "refused" else fault, where)
        written.notes[f"{fault}_{'masked' if style.malformed_turns == 'mask' else 'kept'}"] += 1
    if turn.failed and style.failed_turns == "mask":
        written.notes["failed_masked"] += 1
        message |= {"weight": 0}
    if turn.demonstration or (fault and style.malformed_turns == "mask"):
        message |= {"weight": 0}
    return message | ({"reasoning_content": turn.thoughts} if turn.thoughts else {})


def _xml(turn: Turn, number: int, tools: list[Tool]) -> tuple[RowMessage, str]:
    text, calls = (turn.text or "").strip(), turn.calls
    content = "\n\n".join([text, *map(_function, calls)]).strip()
    fault = ""
    if len(calls) == 1 and calls[0].arguments is not None:
        read = parse_xml(content)
        wanted = {name: argument_text(value) for name, value in calls[0].arguments.items()}
        survives = read and (read.name, read.arguments, read.text) == (calls[0].name, wanted, text)
        plain = all(is_plain(name, value) for name, value in calls[0].arguments.items())
        fault = misuse(calls[0], tools) if survives and plain else "unreadable_call"
    elif calls:
        fault = "several_calls"
    return RowMessage(role="assistant", content=content), fault


def _function(call: Call) -> str:
    lines = [write_argument(n, value, n in OWN_LINES) for n, value in (call.arguments or {}).items()]
    return "\n".join([f"<function={call.name}>", *lines, "</function>"])


def _ticks(turn: Turn, number: int, tools: list[Tool]) -> tuple[RowMessage, str]:
    said, action = (turn.text or "").strip(), (turn.action or _command(turn.calls)).strip("\n")
    content = f"{said}\n\n```\n{action}\n```".strip() if action else said
    read = parse_ticks(content)
    survives = read and (read[0].strip(), read[1].strip()) == (said, action.strip())
    fault = "several_calls" if len(turn.calls) > 1 else "" if survives else "unreadable_call"
    return RowMessage(role="assistant", content=content), fault


def _command(calls: list[Call]) -> str:
    """Returns the command of a call of `bash`, or ''."""
    found = (calls[0].arguments or {}).get("command") if calls and calls[0].name == "bash" else ""
    return found if isinstance(found, str) else ""


def _tool(turn: Turn, number: int, tools: list[Tool]) -> tuple[RowMessage, str]:
    message = RowMessage(role="assistant", content=(turn.text or "").strip())
    fault = next(filter(None, (misuse(call, tools) for call in turn.calls)), "")
    calls = [
        ToolCall(
            id=call.id or f"call_{number}_{place}",
            type="function",
            function=CalledFunction(
                name=call.name, arguments=json.dumps(call.arguments or {}, ensure_ascii=False)
            ),
        )
        for place, call in enumerate(turn.calls)
    ]
    return message | {"tool_calls": calls} if calls else message, fault


def misuse(call: Call, tools: list[Tool]) -> str:
    """Returns why the tool definitions do not allow a call, or '' if they allow it."""
    found = next((tool.function for tool in tools if tool.function.name == call.name), None)
    if found is None:
        return "undefined_tool"
    given = set(call.arguments or {})
    wanted, known = set(found.parameters.get("required", [])), set(found.parameters["properties"])
    return "" if wanted <= given <= known else "undefined_arguments"


@dataclass(frozen=True)
class RowStyle:
    """One form of a row's actions, as `choices.ROW_STYLES` names it.

    write: returns (an assistant's message, fault or ''), from a turn, its number and the tools. compat:
    writes messages as collect_trajs does. recognise: whether an assistant's message has an action in this
    form. offers_tools: whether rows have tool definitions and messages of role `tool`. whole_ranges: whether
    the parser refuses an open view_range.
    """

    write: Callable[[Turn, int, list[Tool]], tuple[RowMessage, str]]
    compat: Callable[[Any, str], Any]
    recognise: Callable[[Record], bool]
    offers_tools: bool = False
    whole_ranges: bool = False


def _says(message: Record, pattern: re.Pattern[str]) -> bool:
    content = message.get("content")
    return isinstance(content, str) and bool(pattern.search(content))


XML = RowStyle(_xml, compat.xml, lambda message: _says(message, re.compile("<function=")), whole_ranges=True)
TICKS = RowStyle(_ticks, compat.ticks, lambda message: _says(message, re.compile(r"^```$", re.MULTILINE)))
TOOL = RowStyle(_tool, compat.tool, lambda message: bool(message.get("tool_calls")), offers_tools=True)


def style_of_row(messages: Sequence[Record]) -> str:
    """Returns the style in which a row's actions are written. "text" if no other style is recognised."""
    turns = [message for message in messages if message.get("role") == "assistant"]
    for name in values_with_code(ROW_STYLES):
        if any(map(ROW_STYLES[name].load().recognise, turns)):
            return name
    return "text"
