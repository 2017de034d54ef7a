"""An edit of a recipe that changes no value runs no rule again."""

import re
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.json_schemas import schema_of
from swelab.configs.kinds import RECIPE_KINDS
from swelab.jobs.snakemake_records import as_value
from swelab.lineage import KINDS, Wildcards
from swelab.records import InputError, digest
from tests.conftest import ROOT
from tests.unit.configs.test_recipes import filled

WILDCARD = re.compile(r"\{(\w+)\}")


def reordered(value, schema):
    if isinstance(value, dict):
        return {key: reordered(each, schema) for key, each in reversed(value.items())}
    return [reordered(each, schema) for each in value] if isinstance(value, list) else value


def numbers(change):
    """Returns an edit that changes how the numbers of fields for any number are written."""

    def edit(value, schema):
        for branch in schema.get("oneOf", []):
            constants = {k: part for k, part in branch.get("properties", {}).items() if "const" in part}
            if constants and all(value.get(k, p.get("default")) == p["const"] for k, p in constants.items()):
                schema = branch
        if isinstance(value, dict):
            parts = schema.get("properties", {})
            return {key: edit(each, parts.get(key, {})) for key, each in value.items()}
        if isinstance(value, list):
            return [edit(each, schema.get("items", {})) for each in value]
        kinds = schema.get("type", [])
        number = "number" in ([kinds] if isinstance(kinds, str) else kinds)
        return change(value) if number and isinstance(value, int | float) else value

    return edit


def without_point(number):
    return int(number) if float(number).is_integer() else number


def whole(edit):
    return lambda recipe, schema: yaml.safe_dump(edit(recipe, schema), sort_keys=False)


EDITS = {
    "reordered": whole(reordered),
    "defaults": whole(filled),
    "sorted defaults": lambda recipe, schema: yaml.safe_dump(filled(recipe, schema)),
    "1 for 1.0": whole(lambda recipe, schema: numbers(without_point)(filled(recipe, schema), schema)),
    "1.0 for 1": whole(lambda recipe, schema: numbers(float)(filled(recipe, schema), schema)),
    "quotes": lambda recipe, schema: yaml.safe_dump(recipe, sort_keys=False, default_style="'"),
    "one line": lambda recipe, schema: yaml.safe_dump(recipe, sort_keys=False, default_flow_style=True),
    "a comment": lambda recipe, schema: f"# a remark\n{yaml.safe_dump(recipe, sort_keys=False)}# another\n",
}


def edited(edit):
    """Writes each recipe of configs/ again after an edit."""
    for kind, model in RECIPE_KINDS.items():
        for name in recipes.names(kind) if model.folder else ():
            path = recipes.path_of(kind, name)
            path.write_text(edit(recipes.read_yaml(path), schema_of(model)))


def one_at_a_time(values):
    """Returns rows with one value of each list, so that each value is in a row."""
    first = [each[0] for each in values]
    return dict.fromkeys(
        (*first[:place], value, *first[place + 1 :]) for place, each in enumerate(values) for value in each
    )


def params():
    """Returns the text that Snakemake compares, of each parameter of each artifact."""
    found = {}
    for name, kind in KINDS.items():
        wildcards = list(dict.fromkeys(WILDCARD.findall(next(iter(kind.files.values())))))
        values = [recipes.names(word) if word in recipes.FOLDERS else [""] for word in wildcards]
        for names in one_at_a_time(values) if kind.params else ():
            at = Wildcards(dict(zip(wildcards, names, strict=True)))
            for param, part in kind.params.items():
                with suppress(InputError, AttributeError):  # the recipe is of another kind, or names a file
                    found[name, names, param] = as_value(repr(part(at)))
    return found


def keys():
    """Returns the hashes of recipes, which name finished work."""
    return {
        (kind, name): digest(recipes.load_named(kind, name))
        for kind in recipes.FOLDERS
        for name in recipes.names(kind)
    }


@pytest.mark.parametrize("edit", EDITS)
def test_a_harmless_edit_of_any_recipe_changes_no_parameter_and_no_key(tmp_path, monkeypatch, edit):
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    monkeypatch.chdir(tmp_path)
    before = params(), keys()
    assert len({name for name, *_ in before[0]}) >= 12
    edited(EDITS[edit])
    assert params() == before[0]
    assert keys() == before[1]


def test_parameters_are_equal_by_value():
    old = {"train": {"lr": 1e-05, "alpha": 64, "betas": [0.9, 1]}, "folder": Path("x").name}
    new = {"folder": "x", "train": {"betas": [0.9, 1.0], "alpha": 64.0, "lr": 1e-05}}
    assert as_value(repr(old)) == as_value(repr(new))
    for one, other in [(1, 2), (1, "1"), (1, True), ([1, 2], [2, 1]), ({"a": None}, {}), (0.5, 1)]:
        assert as_value(repr(one)) != as_value(repr(other))
    assert as_value("<object at 0x1>") == "<object at 0x1>"
