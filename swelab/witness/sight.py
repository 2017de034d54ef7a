"""What a reader of a question sees: the constants in it, as hashes of canonical data."""

import ast
import hashlib
import json
from collections.abc import Callable
from typing import Any

from swelab.witness.inside import canonical_data

canon: Callable[[], Any] = canonical_data.Canon

_ALWAYS: tuple[Any, ...] = (None, True, False, 0, 1, -1, 2, "", [], {}, (), b"", set())


def hash_of(data: Any) -> str:
    """A short hash of canonical data."""
    return hashlib.sha256(json.dumps(data).encode()).hexdigest()[:12]


def constants(text: str) -> list[str]:
    """Hashes of the constants and literal containers in a module's text, and of what anyone tries first."""
    found = [canon().of(value) for value in _ALWAYS]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant):
            found.append(canon().of(node.value))
        elif isinstance(node, ast.List | ast.Tuple | ast.Dict | ast.Set):
            try:
                found.append(canon().of(ast.literal_eval(node)))
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
    return sorted({hash_of(each) for each in found})
