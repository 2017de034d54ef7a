"""Generates the JSON Schemas of recipes, for editors and people, from the models in
`swelab.configs.kinds`."""

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from swelab.configs.kinds import RecipeKind
from swelab.configs.recipe_model import Recipe
from swelab.records import Record
from swelab.records.typed import DIALECT


class _Generator(GenerateJsonSchema):
    """Pydantic's generator without titles for fields. The default of a section contains only the keys that it
    sets."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Returns False, so that fields get no titles."""
        return False

    def encode_default(self, dft: Any) -> Any:
        """Returns the default as JSON. The default of a recipe contains only the keys that it sets."""
        return dft.model_dump(exclude_unset=True) if isinstance(dft, Recipe) else super().encode_default(dft)


def schema_of(kind: RecipeKind[Any]) -> Record:
    """Returns the JSON Schema of a recipe kind. If a key selects one of several models, each model is a
    branch of `oneOf`."""
    made = kind.adapter.json_schema(schema_generator=_Generator)
    found: Record = _inline(made, made.get("$defs", {}))
    head = {"$schema": DIALECT, "title": kind.name, "description": kind.about, "type": "object"}
    key, meaning = kind.chosen_by
    if not key:
        return head | found
    branches = found["oneOf"]
    words = [branch["properties"][key]["enum"][0] for branch in branches]
    for branch, word in zip(branches, words):
        default = {"default": word} if "default" in branch["properties"][key] else {}
        branch["properties"][key] = {"const": word, **default, "description": branch.pop("description")}
    needed = {"required": [key]} if all(key in branch["required"] for branch in branches) else {}
    chosen = {key: {"enum": words, "description": meaning}}
    return head | needed | {"properties": chosen, "oneOf": branches}


def _choice(part: Record) -> Record:
    """Returns the schema of a key with a fixed list of values. For a single value, pydantic writes `const`,
    which is replaced by `enum`."""
    words = part.get("enum") or [part["const"]]
    said = {k: v for k, v in part.items() if k in ("default", "description") and v is not None}
    comment = {"$comment": part["$comment"]} if "$comment" in part else {}
    return comment | {"enum": words} | said


def _inline(part: Any, shared: Record) -> Any:
    """Resolves the references in a part of a schema. Also adds null to the types of a value that may be
    null."""
    if isinstance(part, list):
        return [_inline(each, shared) for each in part]
    if not isinstance(part, dict):
        return part
    if "const" in part or "enum" in part:
        return _choice(part)
    if "$ref" in part:
        part = shared[part["$ref"].rpartition("/")[2]] | {k: v for k, v in part.items() if k != "$ref"}
    if part.get("anyOf", [])[1:] == [{"type": "null"}]:
        inner = _inline(part["anyOf"][0], shared)
        part = {k: v for k, v in part.items() if k != "anyOf"} | {**inner, "type": [inner["type"], "null"]}
    schema_part = {
        key: {name: _inline(each, shared) for name, each in value.items()}
        if key == "properties"
        else _inline(value, shared)
        for key, value in part.items()
        if key not in ("$defs", "title", "discriminator")
    }
    if (
        "default" in schema_part
        and schema_part["default"] is None
        and "null" not in schema_part.get("type", ())
    ):
        del schema_part["default"]
    return schema_part
