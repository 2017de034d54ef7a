"""Parses Python code into syntax trees. Can be used from several threads."""

import ast
import threading

_LOCK = threading.Lock()


def parse_python(source: str | bytes, name: str = "<unknown>") -> ast.Module:
    """Parses `source` into a tree. Raises SyntaxError, ValueError, RecursionError, MemoryError.

    A lock is needed: in CPython 3.11 all threads share one recursion counter, and two threads that parse at
    once cause SystemError (https://github.com/python/cpython/issues/106905).
    """
    with _LOCK:
        return ast.parse(source, name)


def children(node: ast.AST) -> list[ast.AST]:
    """Returns the direct children of a node. Nodes without fields, such as `Load` and `Store`, are
    excluded."""
    nodes: list[ast.AST] = []
    for name in node._fields:
        value = getattr(node, name, None)
        if isinstance(value, list):
            nodes += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST) and value._fields:
            nodes.append(value)
    return nodes


def walk(tree: ast.AST) -> list[ast.AST]:
    """Returns the nodes that `ast.walk` yields, except nodes without fields. Takes two thirds of the time of
    `ast.walk`."""
    found = [tree]
    for node in found:
        found += children(node)
    return found


def is_text_statement(node: ast.AST) -> bool:
    """Returns whether a node is a statement that consists only of a string, such as a docstring."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
