"""Says what to write into a repository's recipe if its tests cannot import a module."""

import re
from pathlib import Path

_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_PYTEST = re.compile(r"\b(pytest|py\.test)\b")
_SKIPPED = (".git", ".swelab")


def advice(words: str, tree: Path, test_cmd: str) -> str:
    """Returns the change of the recipe that lets the tests import the module, or "" if no module is missing.

    words: pytest's messages. tree: the checkout.
    """
    if not (missing := _MISSING.search(words)):
        return ""
    name = missing[1].partition(".")[0]
    folder = folder_of(name, tree)
    if folder is None:
        return f"`install: pip install ...` in a recipe of source git, with the package that has {name}"
    path = Path(folder, *missing[1].split("."))
    if (tree / folder / name).is_dir() and not any((tree / path.parent).glob(f"{path.name}*")):
        what = "as the commit lacks a file that a build may write"
        return f"`test_cmd: ... >{path}.py && {test_cmd}` in the recipe, {what}"
    command = _PYTEST.sub(rf"pytest -o pythonpath={folder}", test_cmd, count=1)
    return f"`test_cmd: {command}` in the recipe, because {name} is in the folder {folder}"


def folder_of(module: str, tree: Path) -> str | None:
    """Returns the folder of a checkout that has to be on Python's path for a module, or None. Of several
    folders it is the one nearest to the root."""
    places = [
        path.parent.relative_to(tree)
        for pattern in (f"{module}.py", module)
        for path in tree.rglob(pattern)
        if path.suffix == ".py" or (path.is_dir() and any(path.glob("*.py")))
    ]
    places = [place for place in places if not set(place.parts) & set(_SKIPPED)]
    return min(places, key=lambda place: (len(place.parts), place.as_posix())).as_posix() if places else None
