"""The recipes under `configs/`, read strictly.

A recipe is a YAML file `configs/<kind>/<name>.yaml`; its keys, types, defaults and their meaning
stand in `configs/schemas/<kind>.json`. Unknown keys are refused with the nearest known name.
"""

import copy
import difflib
import json
import math
import os
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from swelab.records import InputError, Record, check, read_text, validator

CONFIGS = Path("configs")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
"""A recipe's name: it becomes part of paths, of commands and of a regular expression."""
FOLDERS = {
    "experiment": "experiments",
    "subset": "subsets",
    "repo": "repos",
    "policy": "policies",
    "scaffold": "scaffolds",
    "model": "models",
    "sft": "sft",
    "rater": "raters",
}


class _Loader(yaml.SafeLoader):
    """A safe YAML loader that refuses a key given twice (YAML keeps the last, in silence), and reads
    `1e-4` as a number, as YAML 1.2 does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, (list, dict)):
                raise yaml.constructor.ConstructorError(
                    None, None, f"a {type(key).__name__} as a key", key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"key {key!r} is given twice", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


def read_yaml(path: str | Path) -> Any:
    """A YAML file. Raises InputError with the line of a fault."""
    try:
        found = yaml.load(read_text(path), Loader=_Loader)
        json.dumps(found, default=str, skipkeys=True)  # refuses a value that holds itself
        return found
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"{path}, line {mark.line + 1}" if mark else str(path)
        raise InputError(f"not YAML: {error.problem}", where) from None
    except (yaml.YAMLError, ValueError) as error:  # a control character, a date or a number that cannot be
        raise InputError(f"not YAML: {error}", path) from None
    except RecursionError:
        raise InputError("brackets nested too deeply", path, "a recipe of a few levels") from None


def load(kind: str, path: str | Path) -> Record:
    """The recipe at `path`, checked against the schema of its kind, defaults filled in.

    Raises InputError: missing file, YAML fault, unknown key (with the nearest known one),
    missing key, wrong type, value out of range.
    """
    try:
        written = os.stat(path)
    except OSError:
        written = None
    version = (written.st_mtime_ns, written.st_size, written.st_ino) if written else ()
    return copy.deepcopy(_loaded(kind, str(path), version))


@cache
def _loaded(kind: str, path: str, version: tuple[int, ...]) -> Record:
    """The recipe as `load` gives it: planning hundreds of jobs asks for the same ones again and again."""
    recipe = read_yaml(path)
    if not isinstance(recipe, dict):
        raise InputError(f"a {type(recipe).__name__}", path, f"a mapping of {kind} settings")
    return complete(kind, recipe, path)


def complete(kind: str, settings: Record, where: str | Path) -> Record:
    """`settings` checked against the schema of `kind`, defaults filled in. Raises InputError."""
    schema = validator(kind).schema
    _refuse_infinite(settings, where, "")
    _refuse_unknown(settings, schema, schema, str(where), "")
    check(settings, kind, where, _branch(settings, schema, schema))
    return _fill(copy.deepcopy(dict(settings)), schema, schema)


def named(kind: str, name: str, configs: Path = CONFIGS) -> Record:
    """The recipe `name` of `kind`. Raises InputError with the nearest name when there is none."""
    return load(kind, path_of(kind, name, configs))


def names(kind: str, configs: Path = CONFIGS) -> list[str]:
    """Names of the recipes of `kind`, sorted. Raises InputError on a file whose name cannot be one."""
    found = []
    for path in (configs / FOLDERS[kind]).glob("[!.]*.yaml"):
        if not NAME.fullmatch(path.stem):
            raise InputError(
                f"{path.stem!r} cannot name a recipe", path, "letters, digits, and . _ - between them"
            )
        found.append(path.stem)
    return sorted(found)


def names_with(kind: str, key: str, values: Collection[str], configs: Path = CONFIGS) -> list[str]:
    """Names of the recipes of `kind` whose `key` has one of these values; none that is not YAML."""
    found = []
    for name in names(kind, configs):
        try:
            recipe = read_yaml(path_of(kind, name, configs))
        except InputError:
            continue
        if isinstance(recipe, dict) and recipe.get(key) in values:
            found.append(name)
    return found


def path_of(kind: str, name: str, configs: Path = CONFIGS) -> Path:
    """Path of the recipe `name`. Raises InputError when there is none."""
    path = configs / FOLDERS[kind] / f"{name}.yaml"
    if not path.is_file():
        raise InputError(f"unknown {kind} {name!r}{nearest(name, names(kind, configs))}", path)
    return path


def nearest(word: str, known: list[str]) -> str:
    """' (did you mean ...?)' with the known word nearest to `word`, or ''."""
    match = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {match[0]!r}?)" if match else ""


def _resolve(schema: Record, root: Record) -> Record:
    reference = schema.get("$ref")
    return root["$defs"][reference.rsplit("/", 1)[-1]] if reference else schema


def _branch(value: Record, schema: Record, root: Record) -> Record:
    """The branch of a `oneOf` that a mapping's constant key (such as `kind`) selects."""
    schema = _resolve(schema, root)
    for option in (_resolve(each, root) for each in schema.get("oneOf", [])):
        constants = {k: p for k, p in option.get("properties", {}).items() if "const" in p}
        if constants and all(value.get(k, p.get("default")) == p["const"] for k, p in constants.items()):
            return option
    return schema


def _refuse_unknown(value: Any, schema: Record, root: Record, path: str, field: str) -> None:
    if isinstance(value, list):
        for number, item in enumerate(value):
            _refuse_unknown(item, schema.get("items", {}), root, path, f"{field}{number}.")
    if not isinstance(value, dict):
        return
    schema = _branch(value, schema, root)
    known = schema.get("properties", {})
    for key, item in value.items():
        if key in known:
            _refuse_unknown(item, _resolve(known[key], root), root, path, f"{field}{key}.")
        elif schema.get("additionalProperties") is False:
            raise InputError(f"unknown key {field}{key}{nearest(str(key), list(known))}", path)


def _refuse_infinite(value: Any, where: str | Path, field: str) -> None:
    """Raises InputError naming a number that is NaN or infinite: no bound of a schema refuses NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"field {field}: {value}", where, "a finite number")
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in inside:
        _refuse_infinite(item, where, f"{field}.{key}" if field else str(key))


def _fill(value: Any, schema: Record, root: Record) -> Any:
    if not isinstance(value, dict):
        return value
    schema = _branch(value, schema, root)
    for key, part in schema.get("properties", {}).items():
        part = _resolve(part, root)
        if key not in value and "default" in part:
            value[key] = copy.deepcopy(part["default"])
        if key in value:
            value[key] = _fill(value[key], part, root)
    return value
