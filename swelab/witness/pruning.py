"""Removes variables, table columns and arguments from a question if only expected values used them."""

import ast
import copy
from collections.abc import Iterator

from swelab.witness.questions import ALIAS, cut_value
from swelab.witness.scopes import FUNCTIONS, LOOPS, Function, Scope, is_fixture, loads, own_name, parameters
from swelab.witness.subjects import Subjects, is_test
from swelab.witness.tables import class_marks, marks, only_value, positional, rows, table

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


_ROUNDS = 15


class Pruner:
    """Prunes a tree in question form in place, until nothing more can be removed."""

    def __init__(self, subjects: Subjects):
        self.subjects, self.scopes = subjects, subjects.scopes
        self.went = 0

    def run(self) -> None:
        """Prunes the tree."""
        for _ in range(_ROUNDS):
            before = self.went
            for scope in list(self.scopes.inner.values()):
                if not scope.is_class:
                    self._dead_names(scope)
                    self._loops(scope)
            self._attributes()
            self._marks()
            self._arguments()
            self._fixtures()
            if self.went == before:
                break
        fill_empty(self.scopes.tree)

    def _dead_names(self, scope: Scope) -> None:
        """Removes statements that only set or change an unread name, and do not use the package."""
        read = loads(scope.node)
        changes: dict[str, list[tuple[list[ast.stmt], ast.stmt]]] = {}
        for body, statement in list(_statements(scope.node)):
            if name := _changes_only(statement):
                changes.setdefault(name, []).append((body, statement))
        shared = _outer_names(scope.node)
        given = {each.arg for each in parameters(scope.node)} if isinstance(scope.node, FUNCTIONS) else set()
        for name, statements in changes.items():
            own = sum(loads(statement)[name] for _, statement in statements)
            makes = any(isinstance(statement, ast.Assign | ast.AnnAssign) for _, statement in statements)
            if name not in scope.names or name in shared | given or not makes or read[name] > own:
                continue
            if scope is self.scopes.module and (name.startswith(("pytest", "__")) or name == ALIAS):
                continue
            if any(self._acts(statement) for _, statement in statements):
                continue
            for body, statement in statements:
                body.remove(statement)
                self.went += 1
        self._empty_blocks(scope)

    def _acts(self, statement: ast.stmt) -> bool:
        """Returns whether a statement uses the package, yields, awaits, emits, or contains `:=`."""
        value = getattr(statement, "value", None)
        if value is None:
            return False
        if self.subjects.holds(value):
            return True
        leaves = (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)
        return any(
            isinstance(each, leaves) or (isinstance(each, ast.Name) and each.id == ALIAS)
            for each in ast.walk(value)
        )

    def _empty_blocks(self, scope: Scope) -> None:
        """Removes loops and conditions whose body is empty."""
        for body, statement in list(_statements(scope.node)):
            if not isinstance(statement, (*LOOPS, ast.If)) or statement.orelse:
                continue
            head = statement.test if isinstance(statement, ast.If) else statement.iter
            empty = all(isinstance(each, ast.Pass) for each in statement.body)
            if empty and statement in body and not self.subjects.holds(head):
                body.remove(statement)
                self.went += 1

    def _attributes(self) -> None:
        """Removes unread attributes of test classes, except in classes that inherit from the package."""
        nodes = list(ast.walk(self.scopes.tree))
        read = {
            each.attr for each in nodes if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Load)
        }
        read |= {
            each.value for each in nodes if isinstance(each, ast.Constant) and isinstance(each.value, str)
        }
        for owner in self.scopes.classes.values():
            if any(map(self.subjects.holds, owner.bases)) or not self.subjects.is_tests(owner):
                continue
            own = set(loads(owner)) | read
            for body, statement in [*_statements(owner), *_of_methods(owner)]:
                target = statement.targets[0] if isinstance(statement, ast.Assign) else None
                of_class = isinstance(target, ast.Name) and statement in owner.body
                name = target.id if of_class and isinstance(target, ast.Name) else own_name(target)
                is_own = of_class or isinstance(target, ast.Attribute)
                if is_own and name and name not in own and name != "pytestmark" and not self._acts(statement):
                    body.remove(statement)
                    self.went += 1

    def _loops(self, scope: Scope) -> None:
        """Removes columns of literal tables whose loop variable is never read."""
        for node in ast.walk(scope.node):
            if not isinstance(node, (*LOOPS, ast.comprehension)) or not isinstance(node.target, ast.Tuple):
                continue
            width = len(node.target.elts)
            rows = table(node.iter, width, scope, self.scopes)
            if rows is None or self.scopes.of.get(node) is not scope:
                continue
            read = loads(scope.node)
            dead = [
                at
                for at, each in enumerate(node.target.elts)
                if isinstance(each, ast.Name) and not read[each.id]
            ]
            if any(not is_none(row[at]) for row in rows for at in dead):
                node.iter = ast.List(elts=[_without(row, dead) for row in rows], ctx=ast.Load())
                self.went += 1

    def _marks(self) -> None:
        """Removes columns of parametrize marks whose parameter is never read."""
        for owner in [*self.scopes.functions, *self.scopes.classes.values()]:
            for mark in marks(owner):
                scope = self.scopes.of[owner]
                if isinstance(owner, FUNCTIONS):
                    users = [owner]
                else:
                    users = [each for each in self.scopes.methods(owner.name) if is_test(each.name)]
                read = {name for user in users for each in user.body for name in loads(each)}
                asked = {
                    each.arg for fixture in self.subjects.fixtures.values() for each in parameters(fixture)
                }
                dead = [at for at, name in enumerate(mark.names) if name not in read | asked]
                found = table(mark.values, len(mark.names), scope, self.scopes)
                if found is None or not any(not is_none(row[at]) for row in found for at in dead):
                    continue
                made = copy.deepcopy(rows(mark.values, scope, self.scopes) or [])
                mark.replace(
                    ast.List(elts=[_row(each, dead, len(mark.names)) for each in made], ctx=ast.Load())
                )
                self.went += 1

    def _arguments(self) -> None:
        """Removes arguments of helper functions whose parameter is never read."""
        for function, calls in self.subjects.direct.values():
            if class_marks(function, self.scopes):
                continue
            read = {name for each in function.body for name in loads(each)}
            order = positional(function)
            named = [each.arg for each in [*function.args.posonlyargs, *function.args.args]]
            for at, name in enumerate(reversed(named[len(named) - len(function.args.defaults) :]), 1):
                if name not in read and self._goes(function.args.defaults[-at]):
                    function.args.defaults[-at] = ast.Constant(None)
                    self.went += 1
            for call in calls:
                for at, name in enumerate(order[: len(call.args)]):
                    if name not in read and self._goes(call.args[at]):
                        call.args[at] = ast.Constant(None)
                        self.went += 1
                for each in call.keywords:
                    if each.arg not in read and self._goes(each.value):
                        each.value = ast.Constant(None)
                        self.went += 1
        self.went += cut_hollow(self.subjects)

    def _fixtures(self) -> None:
        """Removes unread fixture parameters of tests.

        Only parameters for plain fixtures are removed (`_is_plain`).
        """
        plain = {name for name, each in self.subjects.fixtures.items() if self._is_plain(each)}
        for function in self.scopes.functions:
            if not (is_test(function.name) or is_fixture(function)):
                continue
            read = {name for each in function.body for name in loads(each)}
            kept = [each for each in function.args.args if each.arg in read or each.arg not in plain]
            if len(kept) < len(function.args.args) and not function.args.defaults:
                function.args.args = kept
                self.went += 1

    def _is_plain(self, node: Function) -> bool:
        """Returns whether a fixture only makes and returns a value, and does not use the package."""
        simple = all(isinstance(each, ast.Assign | ast.AnnAssign | ast.Return) for each in node.body)
        automatic = "autouse" in " ".join(map(ast.unparse, node.decorator_list))
        return simple and not automatic and not any(map(self.subjects.holds, node.body))

    def _goes(self, node: ast.expr) -> bool:
        return not is_none(node) and not self.subjects.holds(node)


def fill_empty(tree: ast.AST) -> None:
    """Adds `pass` to blocks that have become empty."""
    for node in ast.walk(tree):
        for part in ("body", "finalbody"):
            block = getattr(node, part, None)
            needed = part == "body" or (isinstance(node, ast.Try) and not node.handlers)
            if isinstance(block, list) and not block and needed and not isinstance(node, ast.Module):
                block.append(ast.Pass())


def drop_unused_imports(tree: ast.Module) -> None:
    """Removes names that nothing reads from the imports of a module."""
    texts = {
        each.value
        for each in ast.walk(tree)
        if isinstance(each, ast.Constant) and isinstance(each.value, str)
    }
    read = set(loads(tree)) | texts | {each.arg for each in ast.walk(tree) if isinstance(each, ast.arg)}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            kept = [each for each in node.names if (each.asname or each.name) in read or each.name == "*"]
            node.names = kept or node.names


def _statements(node: ast.AST) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    """Yields the statements of a function or module, each with its block. Does not enter inner functions."""
    for part in ("body", "orelse", "finalbody"):
        block = getattr(node, part, None)
        for each in list(block) if isinstance(block, list) else []:
            assert isinstance(block, list)
            yield block, each
            if not isinstance(each, (*FUNCTIONS, ast.ClassDef)):
                yield from _statements(each)
    for handler in getattr(node, "handlers", []):
        yield from _statements(handler)
    for case in getattr(node, "cases", []):
        yield from _statements(case)


def _of_methods(node: ast.ClassDef) -> Iterator[tuple[list[ast.stmt], ast.stmt]]:
    for each in node.body:
        if isinstance(each, FUNCTIONS):
            yield from _statements(each)


def _changes_only(node: ast.stmt) -> str:
    """Returns the single name that a statement binds or changes, or "" if the statement may do more."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        return _bound_name(node.targets[0])
    if isinstance(node, ast.AnnAssign | ast.AugAssign):
        return _bound_name(node.target)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        func = node.value.func
        if isinstance(func, ast.Attribute) and func.attr in (
            "append",
            "extend",
            "add",
            "update",
            "sort",
            "insert",
        ):
            return func.value.id if isinstance(func.value, ast.Name) else ""
    return ""


def _bound_name(target: ast.AST) -> str:
    if isinstance(target, ast.Subscript):
        target = target.value
    return target.id if isinstance(target, ast.Name) else ""


def _outer_names(node: ast.AST) -> set[str]:
    """Returns the names that inner functions declare global or nonlocal."""
    told = [each for each in ast.walk(node) if isinstance(each, ast.Global | ast.Nonlocal)]
    return {name for each in told for name in each.names}


def _without(row: list[ast.expr], dead: list[int]) -> ast.expr:
    kept = [ast.Constant(None) if at in dead else copy.deepcopy(each) for at, each in enumerate(row)]
    return ast.Tuple(elts=kept, ctx=ast.Load())


def _row(row: ast.expr, dead: list[int], width: int) -> ast.expr:
    """Replaces the unused columns of a parametrize mark's row by None. A `pytest.param` keeps its marks."""
    if isinstance(row, ast.Call):
        row.args = [ast.Constant(None) if at in dead else each for at, each in enumerate(row.args)]
        return row
    if width == 1:
        return ast.Constant(None)
    if isinstance(row, ast.Tuple | ast.List):
        row.elts = [ast.Constant(None) if at in dead else each for at, each in enumerate(row.elts)]
    return row
