"""Code that changes parts of other modules, so that a test that uses them gets other answers."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from swelab.files import python_syntax

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_SETTERS = frozenset({"setattr", "delattr"})


def changes(tree: ast.Module, own: frozenset[str]) -> Iterator[tuple[int, str, str]]:
    """(line, word, description) of each change to an attribute of something imported from elsewhere.

    own: names of the file's own package, whose modules it may change.
    """
    roots = _roots(tree)
    imported = _imported(tree, own, roots)
    scopes = _scopes(tree, imported)
    hidden: set[str] = set()
    todo: list[ast.AST | set[str]] = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, set):  # the end of the function that gave these names a meaning of their own
            hidden -= node
            continue
        if isinstance(node, Function):
            bound = _arguments(node) & imported
            bound = (bound | scopes[node].bound if node in scopes else bound) - hidden
            hidden |= bound
            todo.append(bound)
        if isinstance(node, ast.Attribute):
            if (root := roots[node]) in imported and root not in hidden:
                yield from _change(node, root)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args:
            root = roots.get(node.args[0], "")
            if root in imported and root not in hidden:
                yield from _call(node.func, root)
        todo += python_syntax.children(node)


def _call(function: ast.Name, root: str) -> Iterator[tuple[int, str, str]]:
    if function.id in _SETTERS:
        yield function.lineno, function.id, f"changes {root} by {function.id}"
    elif function.id == "vars":
        yield function.lineno, "vars", f"takes the names of {root}"


def _change(node: ast.Attribute, root: str) -> Iterator[tuple[int, str, str]]:
    if isinstance(node.ctx, ast.Store | ast.Del):
        yield node.lineno, node.attr, f"changes {root}.{node.attr}"
    elif node.attr == "__dict__":
        yield node.lineno, "__dict__", f"takes the names of {root}"


def _roots(tree: ast.Module) -> dict[ast.AST, str]:
    """The first name of each name and attribute; "" where it is no name."""
    found: dict[ast.AST, str] = {}
    for node in reversed(python_syntax.walk(tree)):  # what a node is made of comes before it
        if isinstance(node, ast.Name):
            found[node] = node.id
        elif isinstance(node, ast.Attribute):
            found[node] = found.get(node.value, "")
    return found


def _imported(tree: ast.Module, own: frozenset[str], roots: dict[ast.AST, str]) -> frozenset[str]:
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
            found |= targets if roots[node.value] in found else set()
    return frozenset(found)


def _arguments(function: Function) -> set[str]:
    """Names of a function's parameters."""
    arguments = function.args
    named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    named += [each for each in (arguments.vararg, arguments.kwarg) if each]
    return {each.arg for each in named}


@dataclass
class _Scope:
    """What a function and the functions in it do to imported names: assign them, call them global."""

    around: "_Scope | None"
    stored: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)

    @property
    def bound(self) -> set[str]:
        """Names that mean something else in the function."""
        return self.stored - self.shared


def _scopes(tree: ast.Module, imported: frozenset[str]) -> dict[ast.AST, _Scope]:
    """The scope of each function; lambdas have none."""
    found: dict[ast.AST, _Scope] = {}
    todo: list[tuple[ast.AST, _Scope | None]] = [(tree, None)]
    while todo:
        node, around = todo.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            around = found[node] = _Scope(around)
        elif around and isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            around.stored |= imported & {node.id}
        elif around and isinstance(node, ast.Global):
            around.shared |= imported.intersection(node.names)
        todo += ((child, around) for child in python_syntax.children(node))
    for scope in reversed(found.values()):  # inner ones before those around them
        if scope.around:
            scope.around.stored |= scope.stored
            scope.around.shared |= scope.shared
    return found
