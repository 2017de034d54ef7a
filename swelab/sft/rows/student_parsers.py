"""Parses answers of the student (the trained model) as SWE-agent does.

The parser must return every action in a row unchanged. SWE-agent's parser `xml_function_calling` reads the
first <function=...> of an answer. Its parser `thought_action` reads the last fenced block that is not inside
another block.

Parses actions out of text that collect_trajs wrote.

SWE-agent's parser strips newlines at the start and end of an argument. collect_trajs writes arguments without
additional newlines, so the parser loses some. Therefore `read_call` reads rows of published datasets by
the rules of collect_trajs. Then `styles` writes them in a form that SWE-agent's parser reads correctly.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from swelab.models.chat.turn_text import argument_text
from swelab.records import Record

OWN_LINES = ("old_str", "new_str", "file_text")
NUMBERS = re.compile(r"\[\s*-?\d{1,9}\s*,\s*-?\d{1,9}\s*\]|-?\d{1,9}")
_CALL = re.compile(r"<function=([^>\n]+)>\n((?:<parameter=[^>\n]+>.*?</parameter>\n)*)</function>", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\n]+)>(.*?)</parameter>\n", re.DOTALL)


def read_call(text: str) -> tuple[str, str, Record] | None:
    """Returns (text, function, arguments) of a turn in the style xml, or None if it ends without a call."""
    start = text.find("<function=")
    while start >= 0:
        if found := _CALL.fullmatch(text, start):
            arguments = {name: _value(name, value) for name, value in _PARAMETER.findall(found[2])}
            return text[:start].removesuffix("\n\n"), found[1], arguments
        start = text.find("<function=", start + 1)
    return None


def _value(name: str, text: str) -> Any:
    if name in OWN_LINES:
        return text.removeprefix("\n").removesuffix("\n")
    numeric = name in ("view_range", "insert_line") and NUMBERS.fullmatch(text)
    return json.loads(text) if numeric else text


def read_line(text: str) -> tuple[str, str] | None:
    """Returns (text, shell line) of a turn in the style ticks, or None if the turn has no fenced block."""
    found = parse_ticks(text)
    return (found[0].strip("\n"), found[1].strip("\n")) if found else None


FUNCTION = re.compile(r"<function=([^>]+)>\n(.*?)</function>", re.DOTALL)
PARAMETER = re.compile(r"<parameter=([^>]+)>(.*?)</parameter>", re.DOTALL)
EDGES = re.compile(r"^\n|\n$")
"""Without MULTILINE, `$` also matches before a final newline, so the parser strips up to two newlines."""
RANGE = re.compile(r"\[\d+,\s*\d+\]")
FENCE = re.compile(r"^```(\S*)\s*\n|^```\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Action:
    """A parsed answer: function name, arguments as text, and the text around the call."""

    name: str
    arguments: dict[str, str]
    text: str


def parse_xml(text: str) -> Action | None:
    """Returns the action that SWE-agent reads from an answer in XML style, or None if there is none."""
    match = FUNCTION.search(text)
    if not match:
        return None
    arguments = {name: EDGES.sub("", value) for name, value in PARAMETER.findall(match[2])}
    if "view_range" in arguments and not RANGE.fullmatch(arguments["view_range"]):
        return None
    return Action(match[1].strip(), arguments, (text[: match.start()] + text[match.end() :]).strip())


def parse_ticks(text: str) -> tuple[str, str] | None:
    """Returns (text, command) that SWE-agent reads from an answer. Returns None if it has no fenced block."""
    opened: list[re.Match[str]] = []
    block = None
    for fence in FENCE.finditer(text):
        if opened and not fence[1]:
            start = opened.pop()
            block = block if opened else (start, fence)
        elif fence[1] is not None:
            opened.append(fence)
    if not block:
        return None
    start, end = block
    return text[: start.start()] + text[end.end() :], text[start.end() : end.start()]


def is_plain(name: str, value: Any) -> bool:
    """Returns whether an argument can be written as text without loss.
    This holds for a string, a number and a `view_range` of integers."""
    if name == "view_range" and isinstance(value, list):
        return all(isinstance(number, int) for number in value)
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def write_argument(name: str, value: Any, own_line: bool) -> str:
    """Writes one <parameter=...>.
    Adds newlines, because a parser strips one newline at the start and up to two at the end."""
    text = argument_text(value)
    before = "\n" if own_line or text.startswith("\n") else ""
    after = "\n\n" if text.endswith("\n") else "\n" if own_line else ""
    return f"<parameter={name}>{before}{text}{after}</parameter>"
