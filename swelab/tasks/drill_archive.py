"""Makes the code of a drill repository, from a seed, and the archive that contains the code."""

import random
from collections.abc import Iterable

from swelab.configs.kinds.repo import DrillRepo
from swelab.records import InputError
from swelab.tasks.drill_text import (
    FILE_SHAPES,
    MODULES,
    NOUNS,
    PACKAGES,
    SHAPES,
    VERBS,
    Function,
    Mutation,
    make_function,
    part_of,
    test_path,
)
from swelab.tasks.forge.archive import write_tar

PYPROJECT = """[project]
name = "drill"
version = "1"

[tool.pytest.ini_options]
pythonpath = ["."]
addopts = "-p no:cacheprovider --tb=no"
"""
README = """# drill

A generated package of small functions with exact tests: `python -m pytest`.
"""


def catalogue(recipe: DrillRepo) -> dict[str, list[Function]]:
    """Maps module paths to clean functions. They depend only on the repository recipe. Raises InputError."""
    rng = random.Random(recipe.seed)
    alone = recipe.layout == "two-file"
    paths = [f"{package}{'_' if alone else '/'}{module}.py" for package in PACKAGES for module in MODULES]
    names = [f"{verb}_{noun}" for verb in VERBS for noun in NOUNS]
    modules, count = recipe.modules, recipe.functions_per_module
    if modules > len(paths) or modules * count > len(names):
        asked = f"{modules} modules of {count} functions"
        raise InputError(asked, "drill", f"at most {len(paths)} modules and {len(names)} functions")
    kinds = FILE_SHAPES if alone else SHAPES
    shapes = [kinds[i % len(kinds)] for i in range(len(names))]
    for order in (paths, names, shapes):
        rng.shuffle(order)
    found: dict[str, list[Function]] = {}
    for index, path in enumerate(paths[:modules]):
        span = range(index * count, (index + 1) * count)
        found[path] = [make_function(rng, names[i], path, shapes[i]) for i in span]
    return found


def module_text(functions: Iterable[Function], name: str = "", mutation: Mutation | None = None) -> str:
    """Returns the source of a module whose function `name` has the bug `mutation`."""
    blocks = ["\n".join(f.lines(mutation if f.name == name else None)) for f in functions]
    return "\n\n\n".join(blocks) + "\n"


def test_text(functions: list[Function]) -> str:
    """Returns the source of a module's tests: one test for each function, with all its cases."""
    module = functions[0].path.removesuffix(".py").replace("/", ".")
    names = "".join(f"    {f.name},\n" for f in functions)
    tests = [
        f"def test_{f.name}():\n" + "\n".join(f"    assert {case}" for case in f.asserts) for f in functions
    ]
    return "\n\n\n".join([f"from {module} import (\n{names})", *tests]) + "\n"


def build_repo(recipe: DrillRepo) -> bytes:
    """Returns a tar of the clean code. The same recipe gives the same bytes. Raises InputError."""
    if recipe.layout == "two-file":
        return write_tar(
            {
                f"{part_of(path)}/{name}": (text.encode(), False)
                for path, functions in catalogue(recipe).items()
                for name, text in ((path, module_text(functions)), (test_path(path), test_text(functions)))
            }
        )
    files = {"README.md": README, "pyproject.toml": PYPROJECT, ".gitignore": "__pycache__/\n"}
    for path, functions in catalogue(recipe).items():
        files[path] = module_text(functions)
        files[test_path(path)] = test_text(functions)
        files[f"{path.partition('/')[0]}/__init__.py"] = ""
    return write_tar({path: (text.encode(), False) for path, text in files.items()})
