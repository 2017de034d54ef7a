"""Converts pydantic's validation errors about a recipe to one line with the field's name."""

import math
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from swelab.configs.kinds import RecipeKind
from swelab.records import InputError, Record, shorten

TYPES = {
    "bool_type": "boolean",
    "dict_type": "object",
    "float_type": "number",
    "int_from_float": "integer",
    "int_type": "integer",
    "list_type": "array",
    "model_type": "object",
    "string_type": "string",
}
BOUNDS = {
    "greater_than_equal": ("ge", "less than the minimum of"),
    "greater_than": ("gt", "less than or equal to the minimum of"),
    "less_than_equal": ("le", "greater than the maximum of"),
    "less_than": ("lt", "greater than or equal to the maximum of"),
}


def fault_of(
    error: ValidationError, settings: Record, kind: RecipeKind[Any], where: str | Path
) -> InputError:
    """Returns the exception for a validation error of `settings`. Unknown keys are reported first."""
    found = [(_field(each, settings), each) for each in error.errors(include_url=False)]
    inside = [at for at, _ in found]
    deepest = [each for each in found if not any(_is_below(at, each[0]) for at in inside)]
    field, first = min(deepest, key=lambda each: each[1]["type"] != "unknown_key")
    if first["type"] == "unknown_key":
        facts = first["ctx"]
        return InputError(f"unknown key {'.'.join([*field, str(facts['key'])])}{facts['hint']}", where)
    here = [each for at, each in deepest if at == field]
    words = _words(next((each for each in here if each["type"] not in TYPES), first), here)
    if first["type"].startswith("union_tag"):
        key, _ = kind.chosen_by
        field = [key] if key in settings else []
        words = _choice(first, key, settings)
    return InputError(
        f"field {'.'.join(field) or '(top level)'}: {shorten(words)}", where, f"a valid {kind.name}"
    )


def infinite(value: Any, field: tuple[str, ...] = ()) -> str:
    """Returns the field and value of the first number that is NaN or infinite, or '' if all numbers are
    finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"field {'.'.join(field)}: {value}"
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return next(filter(None, (infinite(item, (*field, str(key))) for key, item in inside)), "")


def _field(error: ErrorDetails, settings: Any) -> list[str]:
    """Returns the keys and indices of the faulty value. Names of pydantic models are removed from the
    path."""
    parts: list[str] = []
    for part in error["loc"]:
        try:
            settings = settings[part]
        except (KeyError, IndexError, TypeError):
            continue
        parts.append(str(part))
    return parts


def _words(error: ErrorDetails, all_here: list[ErrorDetails]) -> str:
    """Describes an invalid value in the words of JSON Schema."""
    kind, value, facts = error["type"], error["input"], error.get("ctx", {})
    if kind in TYPES:
        types = dict.fromkeys(repr(TYPES[each["type"]]) for each in all_here if each["type"] in TYPES)
        return f"{value!r} is not of type {', '.join(types)}"
    if kind in BOUNDS:
        bound, words = BOUNDS[kind]
        limit = facts[bound]
        return f"{value!r} is {words} {int(limit) if limit == int(limit) else limit}"
    if kind == "missing":
        return f"{error['loc'][-1]!r} is a required property"
    if kind == "literal_error":
        return f"{value!r} is not one of [{facts['expected'].replace(' or ', ', ')}]"
    if kind == "string_pattern_mismatch":
        return f"{value!r} does not match {facts['pattern']!r}"
    if kind in ("string_too_short", "too_short"):
        return f"{value!r} {'should be non-empty' if facts['min_length'] == 1 else 'is too short'}"
    return f"{value!r} is too long" if kind == "too_long" else error["msg"]


def _choice(error: ErrorDetails, key: str, settings: Record) -> str:
    """Describes the fault of a recipe in which the key that selects the model is missing or invalid."""
    if key not in settings:
        return f"{key!r} is a required property"
    known = error.get("ctx", {}).get("expected_tags")
    return f"{settings[key]!r} is not {f'one of [{known}]' if known else 'of type ' + repr('string')}"


def _is_below(inner: list[str], outer: list[str]) -> bool:
    return len(inner) > len(outer) and inner[: len(outer)] == outer
