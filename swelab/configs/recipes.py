"""Reads the recipes under `configs/` strictly.

A recipe is a YAML file `configs/<kind>/<name>.yaml`. `swelab/configs/kinds/<kind>.py` defines its keys,
types, defaults and meanings. An unknown key is an error, and the message suggests the nearest known key.
"""

import copy
import json
import math
import os
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args, overload

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from swelab.configs.kinds import RECIPE_KINDS, RecipeKind
from swelab.configs.recipe_model import Recipe
from swelab.configs.recipe_model import nearest as nearest
from swelab.records import InputError, Record, read_text, shorten

T = TypeVar("T")
R = TypeVar("R", bound=Recipe)

CONFIGS = Path("configs")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""Pattern of a recipe's name. Names are used in paths, in commands and in a regular expression."""
FOLDERS = {kind.name: kind.folder for kind in RECIPE_KINDS.values() if kind.folder}


class _Loader(yaml.SafeLoader):
    """A safe YAML loader that rejects repeated keys. (YAML silently uses the last value.) Reads `1e-4` as a
    number, as YAML 1.2 does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (list, dict)):
                raise yaml.constructor.ConstructorError(
                    None, None, f"a {type(key).__name__} as a key", key_node.start_mark
                )
            if key in keys:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", key_node.start_mark
                )
            keys.add(key)
        made: dict[Any, Any] = super().construct_mapping(node, deep=deep)
        return made


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


def read_yaml(path: str | Path) -> Any:
    """Reads a YAML file. Raises InputError with the line of an error."""
    try:
        found = yaml.load(read_text(path), Loader=_Loader)
        json.dumps(found, default=str, skipkeys=True)  # raises ValueError for a value that contains itself
        return found
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise InputError(f"not YAML: {error.problem}", where) from None
    except (yaml.YAMLError, ValueError) as error:  # for control characters, and impossible dates or numbers
        raise InputError(f"not YAML: {error}", path) from None
    except RecursionError:
        raise InputError("brackets nested too deeply", path, "a recipe of a few levels") from None


@overload
def load(kind: RecipeKind[T], path: str | Path) -> T: ...
@overload
def load(kind: str, path: str | Path) -> Record: ...
def load(kind: Any, path: str | Path) -> Any:
    """Loads, checks and completes a recipe. Returns a model if `kind` is a RecipeKind, and a dictionary if it
    is a name.

    Raises InputError if the file is missing, the YAML is malformed, or a key is missing or unknown. The
    message suggests the nearest known key. Raises InputError if a value has a wrong type or is out of range.
    """
    name = kind if isinstance(kind, str) else kind.name
    return _as_asked(kind, _load_cached(name, str(path), _version(path)))


def _as_asked(kind: RecipeKind[T] | str, recipe: Any) -> Any:
    return recipe.plain() if isinstance(kind, str) else recipe


def load_as(model: type[R], kind: RecipeKind[Any], path: str | Path) -> R:
    """Loads the recipe at `path`. Raises InputError if the recipe is not a `model`."""
    recipe = load(kind, path)
    if isinstance(recipe, model):
        return recipe
    key = kind.chosen_by[0]
    word = get_args(model.model_fields[key].annotation)[0]
    raise InputError(f"{key}: {getattr(recipe, key)}", path, f"{key}: {word}")


def _version(path: str | Path) -> tuple[int, ...]:
    """Returns (mtime in ns, size in bytes, inode) of a file, which change when the file is edited. Returns ()
    if the file cannot be read."""
    try:
        written = os.stat(path)
    except OSError:
        return ()
    return written.st_mtime_ns, written.st_size, written.st_ino


@cache
def _read_cached(path: str, version: tuple[int, ...]) -> Any:
    """Reads a YAML file and caches the result, because each rule needs the file. Callers must not change the
    result."""
    return read_yaml(path)


@cache
def _load_cached(kind: str, path: str, version: tuple[int, ...]) -> Any:
    """Loads a recipe and caches it for this version of the file, because planning jobs needs the same recipes
    very often."""
    recipe = _read_cached(path, version)
    if not isinstance(recipe, dict):
        what = "an empty file" if recipe is None else f"a {type(recipe).__name__}"
        raise InputError(what, path, f"a mapping of {kind} settings")
    return complete(RECIPE_KINDS[kind], recipe, path)


@overload
def complete(kind: RecipeKind[T], settings: Record, where: str | Path) -> T: ...
@overload
def complete(kind: str, settings: Record, where: str | Path) -> Record: ...
def complete(kind: Any, settings: Record, where: str | Path) -> Any:
    """Checks `settings` and adds defaults. Returns a model or a dictionary, like `load`. Raises
    InputError."""
    model = RECIPE_KINDS[kind] if isinstance(kind, str) else kind
    if what := _infinite(settings):
        raise InputError(what, where, "a finite number")
    try:
        return _as_asked(kind, model.adapter.validate_python(copy.deepcopy(dict(settings))))
    except ValidationError as error:
        raise _fault_of(error, settings, model, where) from None


def _infinite(value: Any, field: tuple[str, ...] = ()) -> str:
    """Returns the field and value of the first number that is NaN or infinite, or '' if all numbers are
    finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"field {'.'.join(field)}: {value}"
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return next(filter(None, (_infinite(item, (*field, str(key))) for key, item in inside)), "")


def _fault_of(
    error: ValidationError, settings: Record, kind: RecipeKind[Any], where: str | Path
) -> InputError:
    """Returns the exception for a validation error of `settings`. Unknown keys are reported first, then the
    deepest faults."""
    found = [(_field(each, settings), each) for each in error.errors(include_url=False)]
    deepest = [
        (here, each)
        for here, each in found
        if not any(len(at) > len(here) and at[: len(here)] == here for at, _ in found)
    ]
    field, first = min(deepest, key=lambda pair: pair[1]["type"] != "unknown_key")
    if first["type"] == "unknown_key":
        facts = first["ctx"]
        return InputError(f"unknown key {'.'.join([*field, str(facts['key'])])}{facts['hint']}", where)
    words = dict.fromkeys(each["msg"] for at, each in deepest if at == field)
    what = re.sub(" or instance of [A-Z][A-Za-z]+", "", "; ".join(words))
    if not isinstance(first["input"], dict) and not what.startswith(f"{first['input']!r} "):
        what = f"{first['input']!r}: {what}"
    if first["type"] == "missing":
        field, what = [*field, str(first["loc"][-1])], first["msg"]
    elif first["type"].startswith("union_tag"):
        field = [key := kind.chosen_by[0]]
        what = f"{settings[key]!r}: {first['msg']}" if key in settings else "Field required"
    return InputError(
        f"field {'.'.join(field) or '(top level)'}: {shorten(what)}", where, f"a valid {kind.name}"
    )


def _field(error: ErrorDetails, settings: Any) -> list[str]:
    """Returns the keys and indices of the faulty value. Names of pydantic models are removed from the
    path."""
    parts: list[str] = []
    for part in error["loc"]:
        try:
            settings = settings[part]
        except (KeyError, IndexError, TypeError):
            continue
        parts.append(str(part))
    return parts


@overload
def load_named(kind: RecipeKind[T], name: str, configs: Path = CONFIGS) -> T: ...
@overload
def load_named(kind: str, name: str, configs: Path = CONFIGS) -> Record: ...
def load_named(kind: Any, name: str, configs: Path = CONFIGS) -> Any:
    """Loads the recipe `name` of a kind, like `load`. If there is no such recipe, raises InputError with the
    nearest name."""
    return load(kind, path_of(kind if isinstance(kind, str) else kind.name, name, configs))


def names(kind: str, configs: Path = CONFIGS) -> list[str]:
    """Returns the sorted names of the recipes of a kind. Raises InputError if a file's name is not a valid
    recipe name."""
    stems = []
    for path in (configs / FOLDERS[kind]).glob("[!.]*.yaml"):
        if not NAME.fullmatch(path.stem):
            raise InputError(
                f"{path.stem!r} cannot name a recipe", path, "letters, digits, and . _ - between them"
            )
        stems.append(path.stem)
    return sorted(stems)


def names_with(kind: str, key: str, values: Collection[str], configs: Path = CONFIGS) -> list[str]:
    """Returns the names of the recipes of a kind whose `key` has one of these values. Files that are not YAML
    are skipped."""
    matching = []
    for name in names(kind, configs):
        try:
            path = path_of(kind, name, configs)
            recipe = _read_cached(str(path), _version(path))
        except InputError:
            continue
        if isinstance(recipe, dict) and recipe.get(key) in values:
            matching.append(name)
    return matching


def recipe_file(kind: str) -> str:
    """Returns the path pattern of the recipes of a kind: relative to the clone, with the wildcard {kind} for
    the name."""
    return f"configs/{FOLDERS[kind]}/{{{kind}}}.yaml"


def path_of(kind: str, name: str, configs: Path = CONFIGS) -> Path:
    """Returns the path of the recipe `name`. Raises InputError if there is no such recipe."""
    path = configs / FOLDERS[kind] / f"{name}.yaml"
    if not path.is_file():
        raise InputError(f"unknown {kind} {name!r}{nearest(name, names(kind, configs))}", path)
    return path
