"""Splits a text into lines as git and other programs do.

`str.splitlines` also cuts at form feeds, U+2028 and other characters that do not end a line for these
programs.
"""

import re

_PYTHON = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def lines_of(text: str) -> list[str]:
    """The lines of a patch, a log or JSON Lines, without line ends; only a line feed ends a line."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def python_lines(text: str) -> list[str]:
    """The lines of a program as Python's `ast` counts them, with their ends."""
    return _PYTHON.findall(text)
