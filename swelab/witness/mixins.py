"""Copies assertion classes of the package under test into the test modules that use them.

If a test class inherits `assertParse(...)` from the package, the patch's own code decides whether tests pass.
In a copy, the assertions of that method are rewritten like all other assertions.
"""

import ast
import copy
import re
import sys
from collections.abc import Collection, Mapping

from swelab.witness.scopes import FUNCTIONS, bound_names, root_name

_DEFINED = re.compile(r"^[ \t]+(async )?def _?assert", re.MULTILINE)
TAKEN_OVER = "TestTakenOver"  # named like a test class, so that the class does not count as the package's


def has_assertions(text: str) -> bool:
    """Returns whether a module of a package may define an assertion class."""
    return "class " in text and _DEFINED.search(text) is not None


def taken_over(tree: ast.Module, package: Mapping[str, ast.Module]) -> ast.Module:
    """Returns a test module with copies of the package's assertion classes that its classes inherit.

    package: modules that define such classes, by path in the repository.
    """
    classes = {
        name: (path, class_def)
        for path, tree in package.items()
        for name, class_def in _classes(tree).items()
    }
    own = {each.name for each in tree.body if isinstance(each, ast.ClassDef)}
    standard = _of_standard_library(tree)
    inherited = {
        _last(base)
        for each in tree.body
        if isinstance(each, ast.ClassDef)
        for base in each.bases
        if _last(base) in classes and _last(base) not in own and root_name(base) not in standard
    }
    if not inherited:
        return tree
    tree = copy.deepcopy(tree)
    for number, name in enumerate(sorted(inherited)):
        path, class_def = classes[name]
        copied = copy.deepcopy(class_def)
        copied.name = f"{TAKEN_OVER}{number}"
        added = [*_imports(copied, package[path], _dotted_name(path), number), copied]
        at = next(at for at, each in enumerate(tree.body) if _is_based(each, name))
        for node in (node for each in added for node in ast.walk(each)):
            ast.copy_location(node, tree.body[at])
        for each in tree.body:
            if _is_based(each, name):
                each.bases = [_name(copied.name) if _last(base) == name else base for base in each.bases]  # type: ignore[attr-defined]
        tree.body[at:at] = added
    return ast.fix_missing_locations(tree)


def _of_standard_library(tree: ast.Module) -> set[str]:
    names = set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            tops = {(each.asname or each.name).split(".")[0]: each.name.split(".")[0] for each in node.names}
            names |= {name for name, top in tops.items() if top in sys.stdlib_module_names}
        elif (
            isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in sys.stdlib_module_names
        ):
            names |= {each.asname or each.name for each in node.names}
    return names


def _classes(tree: ast.Module) -> dict[str, ast.ClassDef]:
    """Returns the classes of a module that have assertion methods."""
    return {
        each.name: each
        for each in ast.walk(tree)
        if isinstance(each, ast.ClassDef)
        and any(isinstance(own, FUNCTIONS) and re.match("_?assert", own.name) for own in each.body)
    }


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _is_based(node: ast.stmt, name: str) -> bool:
    return isinstance(node, ast.ClassDef) and any(_last(each) == name for each in node.bases)


def _dotted_name(path: str) -> str:
    parts = path.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join(parts[1:] if parts[0] in ("src", "lib") else parts)


def _name(name: str) -> ast.expr:
    return ast.Name(name, ast.Load())


def _imports(cls: ast.ClassDef, home: ast.Module, module: str, number: int) -> list[ast.stmt]:
    """Returns imports for the names that a class reads from its module. Renames these names in the class."""
    bound = {name: each for each in home.body for name in _bound(each)}
    own = _local(cls)
    new: dict[str, str] = {}
    for node in ast.walk(cls):
        if isinstance(node, FUNCTIONS):
            node.returns = None
        if isinstance(node, ast.arg):
            node.annotation = None
    for node in ast.walk(cls):
        if isinstance(node, ast.Name) and node.id in bound and node.id not in own:
            node.id = new.setdefault(node.id, f"held{number}_{node.id}")
    return [_import(bound[name], name, held, module) for name, held in new.items()]


def _import(source: ast.stmt, name: str, bound: str, module: str) -> ast.stmt:
    """Returns an import that binds the name of a module's statement to another name."""
    if isinstance(source, ast.Import):
        was = next(each for each in source.names if (each.asname or each.name.split(".")[0]) == name)
        return ast.Import([ast.alias(was.name if was.asname else name, bound)])
    if isinstance(source, ast.ImportFrom) and not source.level:
        was = next(each for each in source.names if (each.asname or each.name) == name)
        return ast.ImportFrom(source.module, [ast.alias(was.name, bound)], 0)
    return ast.ImportFrom(module, [ast.alias(name, bound)], 0)


def _bound(node: ast.stmt) -> Collection[str]:
    if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
        return [node.name]
    return [name for each in ast.walk(node) for name in bound_names(each)]


def _local(node: ast.ClassDef) -> set[str]:
    """Returns the names that are bound inside the functions of a class."""
    stored = {
        each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }
    return stored | {each.arg for each in ast.walk(node) if isinstance(each, ast.arg)}
