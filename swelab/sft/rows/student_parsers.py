"""Parses answers of the student (the trained model) as SWE-agent does.

The parser must return every action in a row unchanged. SWE-agent's parser `xml_function_calling` reads the
first <function=...> of an answer. Its parser `thought_action` reads the last fenced block that is not inside
another block.
"""

import re
from dataclasses import dataclass
from typing import Any

from swelab.models.chat.turn_text import argument_text

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
