"""Reduces a module to the statements that one test needs, so that its other tests reveal no answers."""

import ast
import copy
import re
from collections.abc import Iterable, Sequence
from typing import Any

from swelab.witness.mixins import TAKEN_OVER
from swelab.witness.scopes import (
    FUNCTIONS,
    Function,
    bound_names,
    fixture_name,
    is_fixture,
    parameters,
    root_name,
)
from swelab.witness.subjects import is_test

_SET_UP = frozenset(
    "setUp tearDown setUpClass tearDownClass asyncSetUp asyncTearDown setUpModule tearDownModule setup"
    " teardown setup_method teardown_method setup_class teardown_class setup_module teardown_module"
    " setup_function teardown_function pytestmark pytest_plugins".split()
)


def find(tree: ast.Module, names: Sequence[str]) -> list[ast.ClassDef | Function] | None:
    """Returns the classes and the function of `Class::function`, or None if the module does not have them.
    Also finds a test that a class inherits from another class of the module."""
    chain: list[ast.ClassDef | Function] = []
    body: Sequence[ast.stmt] = tree.body
    for at, name in enumerate(names):
        last = at == len(names) - 1
        definition = _definition(body, name, FUNCTIONS if last else (ast.ClassDef,))
        if definition is None and last and chain:
            inherited = _inherited_functions(tree, chain[-1], name)
            return [*chain, *inherited] if inherited else None
        if definition is None:
            return None
        chain.append(definition)
        body = definition.body
    return chain


def inheriting(tree: ast.Module, names: Sequence[str]) -> list[ast.ClassDef | Function] | None:
    """Returns the classes of `Class::function` if the last class may inherit the function from another
    module, else None.
    """
    chain: list[ast.ClassDef | Function] = []
    body: Sequence[ast.stmt] = tree.body
    for name in names[:-1]:
        found = _definition(body, name, (ast.ClassDef,))
        if found is None:
            return None
        chain.append(found)
        body = found.body
    return chain if chain and _has_foreign_base(tree, chain[-1]) else None


def _has_foreign_base(tree: ast.Module, node: ast.AST, depth: int = 0) -> bool:
    for base in getattr(node, "bases", []) if depth < 20 else []:
        if not isinstance(base, ast.Name) or base.id == "object":
            continue
        held = _definition(tree.body, base.id, (ast.ClassDef,))
        if held is None or _has_foreign_base(tree, held, depth + 1):
            return True
    return False


def _definition(body: Sequence[ast.stmt], name: str, kinds: tuple[type, ...]) -> Any:
    definition: Any = None
    for statement in body:
        nested = [getattr(statement, part, []) for part in ("body", "orelse", "handlers")]
        if isinstance(statement, kinds) and statement.name == name:  # type: ignore[attr-defined]
            definition = statement
        elif isinstance(statement, ast.If | ast.Try):
            inner = [each for part in nested for each in part]
            definition = _definition(inner, name, kinds) or definition
    return definition


def _inherited_functions(tree: ast.Module, node: ast.AST, name: str, depth: int = 0) -> list[Function]:
    for base in getattr(node, "bases", []) if depth < 20 else []:
        base_class = _definition(tree.body, base.id, (ast.ClassDef,)) if isinstance(base, ast.Name) else None
        if base_class is None:
            continue
        found = _definition(base_class.body, name, FUNCTIONS)
        if isinstance(found, FUNCTIONS):
            return [found]
        if further := _inherited_functions(tree, base_class, name, depth + 1):
            return further
    return []


class Slicer:
    """Reduces a module to the statements that one test needs. Can be used for each test of the module."""

    def __init__(self, tree: ast.Module):
        self.tree = tree
        self._mentions: dict[int, set[str]] = {}
        self._bound = {id(each): _binds(each) for each in tree.body}
        classes = (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef))
        self._tests = [id(each) for owner in classes for each in owner.body if _is_test_member(each)]

    def slice(self, chain: Sequence[ast.ClassDef | Function]) -> ast.Module:
        """Returns a copy of the module with only what the test at the end of `chain` needs. If the chain ends
        in a class, the class inherits the test from another module."""
        test = chain[-1]
        blocks = (each for each in self.tree.body if isinstance(each, ast.If | ast.Try))
        within = (each for each in blocks if any(node is chain[0] for node in ast.walk(each)))
        holder = next((each for each in self.tree.body if each is chain[0]), None) or next(within)
        kept = self._needed_statements(holder, test)
        # Other tests are not copied: in a class with hundreds of tests, a copy would take seconds per test.
        left_out = ast.Pass()
        copied: dict[int, ast.AST] = {each: left_out for each in self._tests if each != id(test)}
        body = [copy.deepcopy(each, copied) for each in self.tree.body if id(each) in kept]
        module = ast.Module(body=body, type_ignores=[])
        own = copied[id(test)]
        for each in ast.walk(module):
            if isinstance(each, ast.ClassDef):
                each.body = [member for member in each.body if member is not left_out]
        _drop_members(module, {id(copied[id(each)]) for each in chain}, own)
        for each in ast.walk(module):
            if isinstance(each, ast.ClassDef) and not each.body:
                each.body = [ast.Pass()]
        return module

    def _needed_statements(self, holder: ast.stmt, test: ast.AST) -> set[int]:
        """Returns the ids of the module's statements that the test uses, directly or through other
        statements."""
        needed = {id(holder)}
        names = _mentioned_names(holder, test)
        rest = [each for each in self.tree.body if each is not holder]
        imports = (ast.Import, ast.ImportFrom)
        own = {name for each in rest if not isinstance(each, imports) for name in self._bound[id(each)]}
        grown = True
        while grown:
            grown = False
            for each in rest:
                bound = self._bound[id(each)]
                if id(each) in needed or (_is_test_member(each) and not bound & names):
                    continue
                if not _is_wanted(each, bound, names, own, test):
                    continue
                needed.add(id(each))
                names |= self._mentioned_names(each, test)
                grown = True
        return needed

    def _mentioned_names(self, node: ast.stmt, test: ast.AST) -> set[str]:
        if isinstance(node, ast.ClassDef | ast.If | ast.Try):
            return _mentioned_names(node, test)
        if id(node) not in self._mentions:
            self._mentions[id(node)] = _mentioned_names(node, test)
        return self._mentions[id(node)]


def slice_module(tree: ast.Module, chain: Sequence[ast.ClassDef | Function]) -> ast.Module:
    """Returns a copy of a module with only what the test at the end of `chain` needs."""
    return Slicer(tree).slice(chain)


def rename_chain(tree: ast.Module, chain: Sequence[ast.ClassDef | Function]) -> list[str]:
    """Gives a test's classes and function neutral names throughout the module, and returns these names."""
    new: dict[str, str] = {}
    for at, node in enumerate(chain):
        number = str(at) if at else ""
        if isinstance(node, ast.ClassDef):
            ending = next(
                (each for each in ("TestCase", "Tests", "Test", "Case") if node.name.endswith(each)), ""
            )
            new[node.name] = f"TestQ{number}" if node.name.startswith("Test") else f"Q{number}{ending}"
        else:
            new[node.name] = "test_q" if node.name.startswith("test_") or not is_test(node.name) else "testq"
    for each in ast.walk(tree):
        if isinstance(each, ast.Name):
            each.id = new.get(each.id, each.id)
        elif isinstance(each, ast.Attribute) and is_test(each.attr):
            each.attr = new.get(each.attr, each.attr)
    names = [new[node.name] for node in chain]
    for node, name in zip(chain, names):
        node.name = name
    return names


def _is_test_member(node: ast.AST) -> bool:
    return isinstance(node, FUNCTIONS) and is_test(node.name) and not is_fixture(node)


def _is_wanted(node: ast.stmt, bound: set[str], names: set[str], own: set[str], test: ast.AST) -> bool:
    if isinstance(node, FUNCTIONS):
        if is_test(node.name) and not is_fixture(node):
            return node is test or node.name in names
        automatic = is_fixture(node) and "autouse" in " ".join(map(ast.unparse, node.decorator_list))
        return (
            fixture_name(node) in names
            or node.name in names
            or automatic
            or node.name in _SET_UP
            or node.name.startswith("pytest_")
        )
    if isinstance(node, ast.ImportFrom):
        return (
            any(each.name == "*" for each in node.names) or node.module == "__future__" or bool(bound & names)
        )
    if bound:
        return bool(bound & (names | _SET_UP))
    changed = _mutated_name(node)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return False
    if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
        return False
    return not changed or changed not in own or changed in names


def _mutated_name(node: ast.stmt) -> str:
    """Returns the name that a statement of the module changes without binding it, or ""."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        return root_name(node.value.func) if isinstance(node.value.func, ast.Attribute) else ""
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
    targets = [node.target] if isinstance(node, ast.AugAssign | ast.AnnAssign) else targets
    return next((name for each in targets if (name := root_name(each))), "")


def _binds(node: ast.stmt) -> set[str]:
    """Returns the names of the module that a statement binds."""
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return {node.name}
    names = set(bound_names(node))
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            names |= _binds(child)
        elif not isinstance(child, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            names |= {name for each in ast.walk(child) for name in bound_names(each)}
    return names


def _mentioned_names(node: ast.AST, test: ast.AST) -> set[str]:
    """Returns the names that a statement reads, requests as fixtures, or mentions in strings. Other tests in
    a class are skipped."""
    names: set[str] = set()
    rest = [node]
    while rest:
        each = rest.pop()
        if isinstance(each, ast.Name):
            names.add(each.id)
        elif isinstance(each, FUNCTIONS):
            names |= {argument.arg for argument in parameters(each)}
        elif isinstance(each, ast.Constant) and isinstance(each.value, str) and len(each.value) < 200:
            names |= set(filter(str.isidentifier, each.value.replace(",", " ").replace(".", " ").split()))
        inner = list(ast.iter_child_nodes(each))
        if isinstance(each, ast.ClassDef):
            inner = [child for child in inner if child is test or not _is_test_member(child)]
        rest += inner
    return names


def _drop_members(module: ast.Module, chain: set[int], test: ast.AST) -> None:
    """Removes unused members from the test's classes and from copied assertion classes."""
    classes = [each for each in ast.walk(module) if isinstance(each, ast.ClassDef)]
    for owner in [each for each in classes if id(each) in chain or each.name.startswith(TAKEN_OVER)]:
        if _has_foreign_base(module, owner) and id(owner) in chain:
            continue
        while True:
            mentioned = set(_attributes(module)) | _mentioned_members(owner, test)
            members = [
                each
                for each in owner.body
                if each is test
                or not isinstance(each, (*FUNCTIONS, ast.ClassDef))
                or id(each) in chain
                or each.name in mentioned | _SET_UP
                or each.name.startswith("__")
                or "autouse" in " ".join(map(ast.unparse, each.decorator_list))
                or (id(owner) not in chain and not re.match("_?assert", each.name))
            ]
            if len(members) == len(owner.body):
                break
            owner.body = members


def _attributes(module: ast.Module) -> Iterable[str]:
    for each in ast.walk(module):
        if isinstance(each, ast.Attribute):
            yield each.attr


def _mentioned_members(owner: ast.ClassDef, test: ast.AST) -> set[str]:
    found: set[str] = set()
    for each in owner.body:
        found |= _mentioned_names(each, test) - (
            {each.name} if isinstance(each, FUNCTIONS) and each is not test else set()
        )
    return found
