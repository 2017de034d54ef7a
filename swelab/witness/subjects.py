"""Finds the expressions of a test whose values the package under test made. All others are expected values.

A name counts as a value of the package if any such value is assigned to it, even in a later statement. A call
into the package may change its arguments, so the arguments also count as values of the package.
"""

import ast
import sys
from collections.abc import Collection, Mapping

from swelab.witness.assertions import catches
from swelab.witness.scopes import (
    FUNCTIONS,
    LOOPS,
    WITHS,
    Function,
    Scope,
    Scopes,
    fixture_name,
    flat_targets,
    is_fixture,
    is_literal,
    own_name,
    parameters,
    root_name,
)
from swelab.witness.tables import class_marks, direct_helpers, only_value, positional, table

RUNNERS = frozenset(("pytest", "_pytest", "unittest", "nose", "hypothesis", "mock", "freezegun", "six"))
CLEAN_FIXTURES = frozenset(
    tuple("tmp_path tmpdir tmp_path_factory tmpdir_factory monkeypatch request mocker subtests".split())
)
_SELF = ("self", "cls")


def is_test(name: str) -> bool:
    """Returns whether a function of this name is a test."""
    return name.startswith("test")


class Subjects:
    """The names and attributes of a module that hold values of the package."""

    def __init__(self, scopes: Scopes, roots: Collection[str], helpers: Mapping[str, Collection[str]]):
        """Finds the names and attributes. roots: names of the package's modules. If empty, every imported
        name counts as the package. helpers: maps the last name of each test module to the names in it that
        hold values of the package."""
        self.scopes, self.roots, self.helper_modules = scopes, frozenset(roots), helpers
        self.names: set[tuple[Scope, str]] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.names_of = {name: _names(node) for name, node in scopes.classes.items()}
        self.fixtures = {fixture_name(each): each for each in scopes.functions if is_fixture(each)}
        self.direct = direct_helpers(scopes)
        nodes = [each for each in ast.walk(scopes.tree) if each in scopes.of]
        for _ in range(20):
            before = len(self.names) + len(self.attributes)
            for each in nodes:
                self._flow(each, scopes.of[each])
            if len(self.names) + len(self.attributes) == before:
                break

    def holds(self, node: ast.AST | None) -> bool:
        """Returns whether an expression holds a value that the package made."""
        if node is None:
            return False
        scope = self.scopes.of.get(node)
        if isinstance(node, ast.Name):
            home = self.scopes.lookup(node.id, scope)
            return home is not None and (home, node.id) in self.names
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in _SELF:
            return scope is not None and self._attribute(node.attr, scope.class_name)
        return any(self.holds(each) for each in ast.iter_child_nodes(node))

    def is_import(self, node: ast.AST) -> bool:
        """Returns whether an expression is an imported name."""
        if not isinstance(node, ast.Name):
            return False
        home = self.scopes.lookup(node.id, self.scopes.of.get(node))
        found = home.bindings[node.id] if home else []
        return any(isinstance(each, ast.Import | ast.ImportFrom) for each in found)

    def is_tests(self, node: ast.ClassDef) -> bool:
        """Returns whether a class contains tests."""
        return any(
            is_test(each.name) for name in self._chain(node.name) for each in self.scopes.methods(name)
        )

    def exported_names(self) -> set[str]:
        """Returns the module's names that hold values that the package made."""
        return {name for scope, name in self.names if scope is self.scopes.module}

    # The names that hold values of the package.
    def _mark(self, target: ast.AST, scope: Scope) -> None:
        for each in flat_targets(target):
            if isinstance(each, ast.Attribute) and own_name(each) and scope.class_name:
                self.attributes.add((scope.class_name, each.attr))
            else:
                self._mark_name(root_name(each), scope)

    def _mark_name(self, name: str, scope: Scope) -> None:
        home = self.scopes.lookup(name, scope)
        if home is None or name in (*_SELF, "pytest", "monkeypatch"):
            return
        self.names.add((home, name))
        if isinstance(home.node, ast.ClassDef):
            self.attributes.add((home.node.name, name))

    def _attribute(self, name: str, class_name: str) -> bool:
        chain = self._chain(class_name)
        if any((each, name) in self.attributes for each in chain):
            return True
        if any(name in self.names_of.get(each, ()) for each in chain):
            return False
        return any(self.holds(base) for each in chain for base in self.scopes.classes[each].bases)

    def _chain(self, name: str, visited: tuple[str, ...] = ()) -> list[str]:
        if name not in self.scopes.classes or name in visited:
            return []
        found = [name]
        for base in self.scopes.classes[name].bases:
            if isinstance(base, ast.Name):
                found += self._chain(base.id, (*visited, name))
        return found

    def _flow(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node, scope)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                self._assign(target, node.value, scope)
        elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
            self._assign(node.target, node.value, scope)
        elif isinstance(node, (*LOOPS, ast.comprehension)):
            self._loop(node, scope)
        elif isinstance(node, WITHS):
            for item in node.items:
                if item.optional_vars is not None and (
                    self.holds(item.context_expr) or catches(item.context_expr)
                ):
                    self._mark(item.optional_vars, scope)
        elif isinstance(node, ast.ExceptHandler) and node.name:
            self._mark_name(node.name, scope)
        elif isinstance(node, ast.Call):
            self._call(node, scope)
        elif isinstance(node, FUNCTIONS):
            self._function(node, scope)
        elif isinstance(node, ast.ClassDef) and not node.name.startswith("Test") and self._uses(node):
            self._mark_name(node.name, scope)

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.split(".")[0]
            if isinstance(node, ast.ImportFrom):
                module = node.module or alias.name
                held = self.helper_modules.get(module.split(".")[-1])
                subject = alias.name in held if held is not None else self._is_package(module, node.level)
            else:
                held = self.helper_modules.get(alias.name.split(".")[-1])
                subject = bool(held) if held is not None else self._is_package(alias.name, 0)
            if subject:
                self._mark_name(bound, scope)

    def _is_package(self, module: str, level: int) -> bool:
        top = module.split(".")[0]
        if level or top in self.roots:
            return True
        return not self.roots and top not in sys.stdlib_module_names and top not in RUNNERS

    def _assign(self, target: ast.AST, value: ast.expr, scope: Scope) -> None:
        pairs = isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List)
        if pairs and len(target.elts) == len(value.elts):  # type: ignore[attr-defined]
            for one, other in zip(target.elts, value.elts):  # type: ignore[attr-defined]
                self._assign(one, other, scope)
        elif self.holds(value):
            self._mark(target, scope)

    def _loop(self, node: ast.For | ast.AsyncFor | ast.comprehension, scope: Scope) -> None:
        if isinstance(node.target, ast.Tuple):
            found = table(node.iter, len(node.target.elts), scope, self.scopes)
            if found is not None:
                for row in found:
                    for target, cell in zip(node.target.elts, row):
                        self._assign(target, cell, scope)
                return
        if self.holds(node.iter):
            self._mark(node.target, scope)

    def _call(self, node: ast.Call, scope: Scope) -> None:
        name = own_name(node.func)
        arguments = [*node.args, *(each.value for each in node.keywords)]
        if name in self.direct:
            function, _ = self.direct[name]
            inner = self.scopes.inner[function]
            for parameter, argument in self._arguments(function, node):
                if self.holds(argument):
                    self.names.add((inner, parameter))
                elif (inner, parameter) in self.names and isinstance(argument, ast.Name):
                    self._change(argument, scope)
            return
        if catches(node) or (isinstance(node.func, ast.Attribute) and node.func.attr.startswith("assert")):
            return
        if self.holds(node.func):
            for each in arguments:
                self._change(each, scope)
        elif isinstance(node.func, ast.Attribute) and any(self.holds(each) for each in arguments):
            self._change(node.func.value, scope)

    @staticmethod
    def _arguments(function: Function, call: ast.Call) -> list[tuple[str, ast.expr]]:
        named = [(each.arg, each.value) for each in call.keywords if each.arg]
        return [*zip(positional(function), call.args), *named]

    def _change(self, node: ast.expr, scope: Scope) -> None:
        """Records that a value counts as the package's, because a call into the package may change the value.

        Functions, classes, modules and constants are not marked.
        """
        name = root_name(node)
        home = self.scopes.lookup(name, scope)
        if isinstance(node, ast.Attribute) and root_name(node) in _SELF:
            self._mark(node, scope)
        if home is None or name in _SELF:
            return
        fixed = (*FUNCTIONS, ast.ClassDef, ast.Import, ast.ImportFrom)
        if any(isinstance(each, fixed) for each in home.bindings[name]):
            return
        value = only_value(name, scope, self.scopes)
        if value is not None and is_literal(value) and not isinstance(value, ast.List | ast.Dict | ast.Set):
            return
        self._mark_name(name, scope)

    def _function(self, node: Function, scope: Scope) -> None:
        inner = self.scopes.inner[node]
        if node.name not in self.direct:
            self._parameters(node, inner)
        asked = is_fixture(node) and any((inner, each.arg) in self.names for each in parameters(node))
        if asked or self._uses(node):
            self._mark_name(node.name, scope)

    def _uses(self, node: Function | ast.ClassDef) -> bool:
        """Returns whether a function or class reads a package-made value that is defined outside of it."""
        inside = {id(each) for each in ast.walk(node)}
        used = [each for each in ast.walk(node) if isinstance(each, ast.Name | ast.Attribute)]
        return any(self._reaches(each, node, inside) for each in used)

    def _reaches(self, node: ast.Name | ast.Attribute, outer: ast.AST, inside: set[int]) -> bool:
        """Returns whether a name or attribute in `outer` reads a value of the package from outside `outer`.
        outer: a function or class."""
        if isinstance(node.ctx, ast.Store):
            return False
        if isinstance(node, ast.Attribute):
            return own_name(node) != "" and self.holds(node)
        home = self.scopes.lookup(node.id, self.scopes.of.get(node))
        own = home is not None and (home.node is outer or id(home.node) in inside)
        return home is not None and not own and (home, node.id) in self.names

    def _parameters(self, node: Function, inner: Scope) -> None:
        marks = class_marks(node, self.scopes)
        asks = is_test(node.name) or is_fixture(node) or node.name in ("setup_method", "setUp")
        for argument in parameters(node):
            name = argument.arg
            mark = next((each for each in marks if name in each.names), None)
            if name in _SELF:
                continue
            if mark is not None:
                home = self.scopes.of[node]
                held = table(mark.values, len(mark.names), home, self.scopes)
                column = [mark.values] if held is None else [row[mark.names.index(name)] for row in held]
                subject = any(self.holds(each) for each in column)
            elif asks and name in self.fixtures:
                fixture = self.fixtures[name]
                home = self.scopes.of[fixture]
                subject = (home, fixture.name) in self.names
            else:
                subject = not (asks and name in CLEAN_FIXTURES)
            if subject:
                self.names.add((inner, name))


def _names(node: ast.ClassDef) -> set[str]:
    """Returns the names that a class defines: its methods and attributes."""
    names = {each.name for each in node.body if isinstance(each, FUNCTIONS)}
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and own_name(each):
            names.add(each.attr)
    for statement in node.body:
        for each in ast.walk(statement):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                names.add(each.id)
    return names
