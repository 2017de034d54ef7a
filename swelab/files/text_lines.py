"""The lines of a text as git and other programs count them.

`str.splitlines` also cuts at form feeds, U+2028 and other characters that end no line for these programs.
"""

import re

_PYTHON = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def lines_of(text: str) -> list[str]:
    """The lines of a patch, a log or JSON Lines, which a line feed alone ends; without it."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def python_lines(text: str) -> list[str]:
    """The lines of a program as its `ast` counts them, with their ends."""
    return _PYTHON.findall(text)
