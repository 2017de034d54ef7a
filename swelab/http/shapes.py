"""Parses clients' JSON as strict msgspec structures, and limits the size of free-form values."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from swelab.http.refusal import Refused
from swelab.records import shorten

DEEPEST, MOST_PARTS = 32, 10_000
"""Limits of a free-form value: its nesting depth, and the number of values on one level."""
T = TypeVar("T")


def decode(data: bytes, shape: type[T]) -> T:
    """Parses a JSON text as a value of type `shape`.

    Raises Refused with the fault, its place and the expected type.
    """
    try:
        return msgspec.json.decode(data, type=shape)
    except msgspec.ValidationError as error:
        raise Refused(shorten(str(error), 400)) from None
    except RecursionError:
        raise Refused(f"the body is nested too deeply; expected at most {DEEPEST} levels") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise Refused(f"the body is not JSON: {shorten(str(error), 200)}") from None


def check_form(value: Any, where: str, deepest: int = DEEPEST, most: int = MOST_PARTS) -> None:
    """Raises Refused if a value is nested deeper than `deepest` or has over `most` values on one level.

    where: name of the value in the message.
    """
    level = [value]
    for _ in range(deepest):
        if len(level) + sum(map(len, level)) > most:
            raise Refused(f"{where} has too many values; expected at most {most} on one level")
        parts = [each.values() if isinstance(each, Mapping) else each for each in level]
        level = [inner for part in parts for inner in part if isinstance(inner, dict | list)]
        if not level:
            return
    raise Refused(f"{where} is nested too deeply; expected at most {deepest} levels")
