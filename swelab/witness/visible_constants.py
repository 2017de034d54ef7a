"""Collects the constants that a reader of a question can see, and hashes canonical data."""

import ast
import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any

from swelab.witness.emitted import Data
from swelab.witness.inside import canonical_data

canon: Callable[[], Any] = canonical_data.Canon

_ALWAYS: tuple[Any, ...] = (None, True, False, 0, 1, -1, 2, "", [], {}, (), b"", set())


MOST_SHOWN = 500


def hash_of(data: Any) -> str:
    """Returns a short hash of canonical data."""
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:12]


def constants(text: str) -> list[Data]:
    """Returns the constants and literal containers in a module's text, at most MOST_SHOWN."""
    by_text: dict[str, Data] = {}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant | ast.List | ast.Tuple | ast.Dict | ast.Set | ast.UnaryOp):
            try:
                data = canon().of(ast.literal_eval(node))
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            by_text.setdefault(json.dumps(data), data)
    return list(by_text.values())[:MOST_SHOWN]


def hashes(shown: Iterable[Data]) -> list[str]:
    """Returns hashes of the shown constants, and of values that people usually guess first."""
    tried = [canon().of(value) for value in _ALWAYS]
    return sorted({hash_of(each) for each in (*shown, *tried)})
