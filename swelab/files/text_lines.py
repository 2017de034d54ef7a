"""Splits a text into lines as git and other programs do. `str.splitlines` also splits at form feeds, U+2028
and other characters, which are not line ends for these programs."""

import re

_PYTHON = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


def lines_of(text: str) -> list[str]:
    """Splits a patch, a log or JSON Lines at line feeds only. The line feeds are removed."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def python_lines(text: str) -> list[str]:
    """Splits a program into lines as Python's `ast` counts them. Line ends are kept."""
    return _PYTHON.findall(text)
