"""Splits a text into lines as git and other programs do. `str.splitlines` also splits at form feeds, U+2028
and other characters, which are not line ends for these programs."""

import re

_PYTHON = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")

_TERMINAL = re.compile(
    r"(?:\x1b\[|\x9b)[0-?]*+[ -/]*+[@-~]|\x1b\][^\x07\x1b\n]*+(?:\x07|\x1b\\)|\x1b[ -/]++[0-~]|\x1b[=>78]"
)
"""Terminal control sequences (ECMA-48): colours, erased lines, links, character sets."""


def lines_of(text: str) -> list[str]:
    """Splits a patch, a log or JSON Lines at line feeds only. The line feeds are removed."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def python_lines(text: str) -> list[str]:
    """Splits a program into lines as Python's `ast` counts them. Line ends are kept."""
    return _PYTHON.findall(text)


def without_terminal_codes(text: str) -> str:
    """Returns a program's output without colours and other codes for a terminal."""
    return _TERMINAL.sub("", text) if "\x1b" in text or "\x9b" in text else text
