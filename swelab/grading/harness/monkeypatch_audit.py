"""Code that changes parts of other modules, so that a test that uses them gets other answers."""

import ast
from collections.abc import Iterator

from swelab.files import python_syntax

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_SETTERS = frozenset({"setattr", "delattr"})


def changes(tree: ast.Module, own: frozenset[str]) -> Iterator[tuple[int, str, str]]:
    """(line, word, description) of each change to an attribute of something imported from elsewhere.

    own: names of the file's own package, whose modules it may change.
    """
    imported = _imported(tree, own)
    todo: list[tuple[ast.AST, frozenset[str]]] = [(tree, imported)]
    while todo:
        node, names = todo.pop()
        if isinstance(node, Function):
            names -= _bound(node)
        if isinstance(node, ast.Attribute) and (found := _change(node, names)):
            yield found
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            root = _root(node.args[0])
            if node.func.id in _SETTERS and root in names:
                yield node.lineno, node.func.id, f"changes {root} by {node.func.id}"
            elif node.func.id == "vars" and root in names:
                yield node.lineno, "vars", f"takes the names of {root}"
        todo += ((child, names) for child in python_syntax.children(node))


def _change(node: ast.Attribute, names: frozenset[str]) -> tuple[int, str, str] | None:
    root = _root(node)
    if root not in names:
        return None
    if isinstance(node.ctx, ast.Store | ast.Del):
        return node.lineno, node.attr, f"changes {root}.{node.attr}"
    return (node.lineno, "__dict__", f"takes the names of {root}") if node.attr == "__dict__" else None


def _root(node: ast.AST) -> str:
    """The first name of a dotted one."""
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _imported(tree: ast.Module, own: frozenset[str]) -> frozenset[str]:
    """Names that the file gives to what it imports from elsewhere."""
    found: set[str] = set()
    for node in python_syntax.walk(tree):
        if isinstance(node, ast.Import):
            found |= {
                alias.asname or alias.name.partition(".")[0]
                for alias in node.names
                if alias.name.partition(".")[0] not in own
            }
        elif isinstance(node, ast.ImportFrom):
            inside = node.level or (node.module or "").partition(".")[0] in own
            found |= set() if inside else {alias.asname or alias.name for alias in node.names}
    for node in tree.body:  # other names for the same
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
            targets = {each.id for each in node.targets if isinstance(each, ast.Name)}
            found |= targets if _root(node.value) in found else set()
    return frozenset(found)


def _bound(function: Function) -> frozenset[str]:
    """Parameters of a function and the names that it assigns."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    named += [each for each in (arguments.vararg, arguments.kwarg) if each]
    inside = [] if isinstance(function, ast.Lambda) else function.body
    stored = {
        node.id
        for statement in inside
        for node in python_syntax.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    shared = {
        name
        for statement in inside
        for node in python_syntax.walk(statement)
        if isinstance(node, ast.Global)
        for name in node.names
    }
    return frozenset({each.arg for each in named} | stored - shared)
