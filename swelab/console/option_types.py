"""Types of command-line options. Their error messages name the expected value."""

import argparse
import json
import math
import re
from collections.abc import Callable
from typing import Any


def at_least(least: int) -> Callable[[str], int]:
    """Returns an argparse type for whole numbers of at least `least`. The type raises ArgumentTypeError."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit()) or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number of at least {least}")
        return int(text)

    return read


def whole(text: str) -> int:
    """Parses a whole number, which may be negative. Raises ArgumentTypeError."""
    if not re.fullmatch(r"-?[0-9]+", text):
        raise argparse.ArgumentTypeError(f"{text!r}; expected a whole number")
    return int(text)


def mapping(text: str) -> dict[str, Any]:
    """Parses a JSON object. Raises ArgumentTypeError."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise argparse.ArgumentTypeError(f"{text[:80]!r}; expected a JSON object")
    return found


def title(text: str) -> str:
    """Checks a name for use in tables and file names, and returns it. Raises ArgumentTypeError."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9 ._+:=@-]{0,99}", text):
        expected = "up to 100 letters, digits, spaces and . _ + : = @ -, a letter or digit first"
        raise argparse.ArgumentTypeError(f"{text!r}; expected {expected}")
    return text


def number(text: str) -> float:
    """Parses a finite number. Raises ArgumentTypeError."""
    try:
        read = float(text)
    except ValueError:
        read = math.nan
    if not math.isfinite(read):
        raise argparse.ArgumentTypeError(f"{text!r}; expected a number")
    return read
