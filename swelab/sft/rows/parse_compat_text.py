"""Parses actions out of text that collect_trajs wrote.

SWE-agent's parser strips newlines at the start and end of an argument. collect_trajs writes arguments without
additional newlines, so the parser loses some. Therefore this module reads rows of published datasets by
the rules of collect_trajs. Then `styles` writes them in a form that SWE-agent's parser reads correctly.
"""

import json
import re
from typing import Any

from swelab.records import Record
from swelab.sft.rows.student_parsers import parse_ticks

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
