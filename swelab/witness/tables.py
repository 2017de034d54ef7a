"""Reads tables of cases in tests: rows of literal lists, parametrize marks, and loops over them."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from swelab.witness.scopes import Function, Scope, Scopes, own_name

_SEEN_THROUGH = re.compile(r"(held\d+_)?(staticmethod|classmethod|(contextlib\.)?contextmanager)")
"""Decorators of functions that get the caller's arguments unchanged."""


@dataclass
class Mark:
    """A parametrize mark: the names of its parameters, and the call that contains its rows."""

    names: list[str]
    call: ast.Call

    @property
    def values(self) -> ast.expr:
        """The expression that gives the rows."""
        if len(self.call.args) > 1:
            return self.call.args[1]
        return next(each.value for each in self.call.keywords if each.arg == "argvalues")

    def replace(self, values: ast.expr) -> None:
        """Replaces the expression that gives the rows."""
        if len(self.call.args) > 1:
            self.call.args[1] = values
        for each in self.call.keywords:
            if each.arg == "argvalues":
                each.value = values


def marks(node: Function | ast.ClassDef) -> Iterator[Mark]:
    """Yields the parametrize marks of a function or class whose parameter names are literal."""
    for each in node.decorator_list:
        if not (isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)):
            continue
        if each.func.attr != "parametrize":
            continue
        first = (
            each.args[0] if each.args else next((k.value for k in each.keywords if k.arg == "argnames"), None)
        )
        has_rows = len(each.args) > 1 or any(k.arg == "argvalues" for k in each.keywords)
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and has_rows:
            yield Mark([name.strip() for name in first.value.split(",") if name.strip()], each)
        elif isinstance(first, ast.Tuple | ast.List) and has_rows:
            names = [name.value for name in first.elts if isinstance(name, ast.Constant)]
            if len(names) == len(first.elts):
                yield Mark([str(name) for name in names], each)


def class_marks(node: Function, scopes: Scopes) -> list[Mark]:
    """Returns the marks of a function and, if the function is a method, of its class."""
    outer = scopes.of[node].node
    return [*marks(node), *(marks(outer) if isinstance(outer, ast.ClassDef) else [])]


def rows(node: ast.AST, scope: Scope, scopes: Scopes) -> list[ast.expr] | None:
    """Returns the rows of a literal table, or None if the expression is not literal.

    The expression may be a list, a name with only one value, or a `zip` of tables. The items of a dict give
    pairs.
    """
    if isinstance(node, ast.Name):
        value = only_value(node.id, scope, scopes)
        return None if value is None else rows(value, scope, scopes)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return None if any(isinstance(each, ast.Starred) for each in node.elts) else node.elts
    if not isinstance(node, ast.Call):
        return None
    if isinstance(node.func, ast.Attribute) and node.func.attr == "items" and not node.args:
        held: ast.AST | None = node.func.value
        if isinstance(held, ast.Name):
            held = only_value(held.id, scope, scopes)
        if isinstance(held, ast.Dict) and all(held.keys):
            pairs = zip(held.keys, held.values)
            return [ast.Tuple(elts=[key, value], ctx=ast.Load()) for key, value in pairs if key]
    if isinstance(node.func, ast.Name) and node.func.id == "zip" and not node.keywords:
        columns = [rows(each, scope, scopes) for each in node.args]
        if columns and all(column is not None for column in columns):
            return [ast.Tuple(elts=list(each), ctx=ast.Load()) for each in zip(*[c or [] for c in columns])]
    return None


def only_value(name: str, scope: Scope, scopes: Scopes) -> ast.expr | None:
    """Returns the value of a name that is assigned once and never changed.

    Method calls, and assignments to elements or attributes, count as changes.
    """
    home = scopes.lookup(name, scope)
    if home is None or len(home.bindings[name]) != 1 or isinstance(home.node, ast.ClassDef):
        return None
    body = [each for each in ast.walk(home.node) if isinstance(each, ast.stmt)]
    value = None
    for each in body:
        if isinstance(each, ast.Assign) and len(each.targets) == 1:
            target = each.targets[0]
            if isinstance(target, ast.Name) and target.id == name:
                value = each.value
        if _changes(each, name):
            return None
    return value if not isinstance(value, ast.Name) else None


def _changes(statement: ast.stmt, name: str) -> bool:
    """Returns whether a statement is `name.method(...)` or sets an element or an attribute of the name."""
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        func = statement.value.func
        return isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == name
    targets = statement.targets if isinstance(statement, ast.Assign | ast.Delete) else []
    if isinstance(statement, ast.AugAssign):
        targets = [statement.target]
    held = [each.value for each in targets if isinstance(each, ast.Subscript | ast.Attribute)]
    own = isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name)
    return any(isinstance(each, ast.Name) and each.id == name for each in [*held, *(targets if own else [])])


def cells(row: ast.expr, width: int) -> list[ast.expr] | None:
    """Returns the cells of a table row: a tuple, a list or a `pytest.param`.

    Returns None if the row does not have `width` cells.
    """
    elements: list[ast.expr] | None = None
    if isinstance(row, ast.Call) and ast.unparse(row.func).endswith("param"):
        elements = row.args
    elif width == 1:
        return [row]
    elif isinstance(row, ast.Tuple | ast.List):
        elements = row.elts
    if elements is None or len(elements) != width or any(isinstance(each, ast.Starred) for each in elements):
        return None
    return elements


def table(values: ast.AST, width: int, scope: Scope, scopes: Scopes) -> list[list[ast.expr]] | None:
    """Returns the cells of each row of a literal table, or None if a row is not literal."""
    found = rows(values, scope, scopes)
    split = [cells(each, width) for each in found] if found is not None else [None]
    return None if any(each is None for each in split) else [each for each in split if each is not None]


def direct_helpers(scopes: Scopes) -> dict[str, tuple[Function, list[ast.Call]]]:
    """Returns the functions that are only called and never used otherwise, each with all its calls.

    So all arguments of these functions are known.
    """
    uses: dict[str, int] = {}
    calls: dict[str, list[ast.Call]] = {}
    for node in ast.walk(scopes.tree):
        if isinstance(node, ast.Call) and (name := own_name(node.func)):
            calls.setdefault(name, []).append(node)
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            used = node.id if isinstance(node, ast.Name) else node.attr
            uses[used] = uses.get(used, 0) + 1
    named: dict[str, list[Function]] = {}
    for function in scopes.functions:
        named.setdefault(function.name, []).append(function)
    return {
        name: (definitions[0], calls[name])
        for name, definitions in named.items()
        if len(definitions) == 1
        and not name.startswith("test")
        and all(_SEEN_THROUGH.fullmatch(ast.unparse(each)) for each in definitions[0].decorator_list)
        and uses.get(name, 0) == len(calls.get(name, ())) > 0
        and not definitions[0].args.vararg
        and not definitions[0].args.kwarg
        and all(_is_plain(call) for call in calls[name])
    }


def _is_plain(call: ast.Call) -> bool:
    starred = any(isinstance(each, ast.Starred) for each in call.args)
    return not starred and all(each.arg is not None for each in call.keywords)


def positional(node: Function) -> list[str]:
    """Returns the names of a function's positional parameters, without self or cls."""
    names = [each.arg for each in [*node.args.posonlyargs, *node.args.args]]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names
