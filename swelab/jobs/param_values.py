"""The text of a job's parameters in a form that is equal for equal values."""

import ast
from functools import cache
from typing import Any


@cache
def as_value(text: str) -> str:
    """Returns a parameter's text in a form that is equal for equal values."""
    try:
        return repr(_in_order(ast.literal_eval(text)))
    except (ValueError, SyntaxError):  # for a parameter that is no literal
        return text


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = ((_in_order(key), _in_order(each)) for key, each in value.items())
        return dict(sorted(pairs, key=repr))
    if isinstance(value, list | tuple):
        return type(value)(map(_in_order, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value
