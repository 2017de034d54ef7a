"""Python code as a syntax tree, from several threads."""

import ast
import threading

_LOCK = threading.Lock()


def parse(source: str | bytes, name: str = "<unknown>") -> ast.Module:
    """The tree of `source`. Raises SyntaxError, ValueError, RecursionError, MemoryError.

    CPython 3.11 counts the depth of trees that are being made for all threads together, and raises
    SystemError when two are at it (https://github.com/python/cpython/issues/106905).
    """
    with _LOCK:
        return ast.parse(source, name)
