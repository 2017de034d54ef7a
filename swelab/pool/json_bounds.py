"""What JSON of strangers may be: its depth and the count of its values are bounded before it is parsed."""

import json
import re
from typing import Any

from swelab.pool.request_schemas import first_fault
from swelab.records import Record

_DEPTH, _VALUES = 16, 100_000
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def is_bounded(data: bytes) -> bool:
    """Whether JSON has no more depth and values than any request needs; strings count as nothing."""
    if data.count(b"[") + data.count(b"{") <= _DEPTH and data.count(b",") <= _VALUES:
        return True
    bare = _STRINGS.sub(b"", data)
    depth = 0
    for bracket in bare.translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > _DEPTH:
            return False
    return bare.count(b",") <= _VALUES


def examined(data: bytes, shape: Record) -> tuple[Any, str]:
    """(a body's JSON, the first thing that is wrong with it and what is expected; "" for nothing)."""
    if not is_bounded(data):
        return None, f"the request is nested deeper than {_DEPTH}, or has more than {_VALUES} values"
    try:
        found = without_null(json.loads(data, object_pairs_hook=_once, parse_constant=_no_number))
    except (ValueError, RecursionError):
        return None, "the request is not JSON, or names a field twice"
    fault = first_fault(shape, found)
    return found, f"{fault}; expected a valid request" if fault else ""


def without_null(found: Any) -> Any:
    """The same without `env: null`: some clients say so that there are none."""
    if isinstance(found, dict) and found.get("env", "") is None:
        del found["env"]
    return found


def _once(pairs: list[tuple[str, Any]]) -> Record:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is given twice")
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")
