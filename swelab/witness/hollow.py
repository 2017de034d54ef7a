"""Removes arguments that helper functions only compare with None: `if expected is not None: ...`."""

import ast

from swelab.witness.questions import cut_value
from swelab.witness.scopes import Function, own_name
from swelab.witness.subjects import Subjects
from swelab.witness.tables import only_value, positional

_DISPLAYS = (ast.List, ast.Tuple, ast.Dict, ast.Set, ast.JoinedStr, ast.ListComp, ast.DictComp, ast.SetComp)


def cut_hollow(subjects: Subjects) -> int:
    """Replaces arguments by a placeholder if helpers only compare them with None.

    Returns the number of replaced arguments.
    """
    hollow = _hollow_parameters(subjects)
    went = 0
    for name, (function, calls) in subjects.direct.items():
        order = positional(function)
        for call in calls:
            for at, parameter in enumerate(order[: len(call.args)]):
                if (name, parameter) in hollow and _is_something(call.args[at], subjects):
                    call.args[at] = cut_value()
                    went += 1
            for each in call.keywords:
                if (name, each.arg) in hollow and _is_something(each.value, subjects):
                    each.value = cut_value()
                    went += 1
    return went


def _is_something(node: ast.expr, subjects: Subjects) -> bool:
    """Returns whether an expression is an expected value that is certainly not None and not removed yet."""
    if subjects.holds(node):
        return False
    if isinstance(node, ast.Name):
        scope = subjects.scopes.of.get(node, subjects.scopes.module)
        value = only_value(node.id, scope, subjects.scopes)
        return value is not None and not isinstance(value, ast.Name) and _is_something(value, subjects)
    return isinstance(node, _DISPLAYS) or (isinstance(node, ast.Constant) and node.value is not None)


def _hollow_parameters(subjects: Subjects) -> set[tuple[str, str]]:
    """Returns pairs (helper, parameter) in which the helper only compares the parameter with None."""
    hollow = {
        (name, parameter)
        for name, (function, _) in subjects.direct.items()
        for parameter in [*positional(function), *(each.arg for each in function.args.kwonlyargs)]
        if (subjects.scopes.inner[function], parameter) not in subjects.names
    }
    grown = True
    while grown:
        kept = {
            (name, parameter)
            for name, parameter in hollow
            if _reads(subjects.direct[name][0], parameter) == _asks(subjects, name, parameter, hollow)
        }
        grown, hollow = kept != hollow, kept
    return hollow


def _reads(function: Function, name: str) -> int:
    names = [each for each in ast.walk(function) if isinstance(each, ast.Name) and each.id == name]
    return len(names)


def _asks(subjects: Subjects, name: str, parameter: str, hollow: set[tuple[str, str]]) -> int:
    """Returns how often a helper compares a parameter with None.

    Calls that pass the parameter to a `hollow` parameter count too.
    """
    count = 0
    for node in ast.walk(subjects.direct[name][0]):
        if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Is | ast.IsNot):
            count += len(node.ops) == 1 and _is_named(node.left, parameter) and is_none(node.comparators[0])
        elif isinstance(node, ast.Call) and own_name(node.func) in subjects.direct:
            called = own_name(node.func)
            order = positional(subjects.direct[called][0])
            given = [*zip(order, node.args), *((each.arg or "", each.value) for each in node.keywords)]
            count += sum(_is_named(value, parameter) and (called, at) in hollow for at, value in given)
    return count


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def is_none(node: ast.expr) -> bool:
    """Returns whether an expression is the constant None."""
    return isinstance(node, ast.Constant) and node.value is None
