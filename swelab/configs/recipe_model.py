"""The base class of recipes: a strict and frozen model. Its dump is the recipe with defaults filled in."""

import difflib
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from swelab.choices import Choice, canonical
from swelab.records import Record

T = TypeVar("T")


class Recipe(BaseModel):
    """A recipe or a section of a recipe. Unknown keys and infinite numbers are errors. Types are not
    converted. Objects are immutable."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        defer_build=True,
        serialize_by_alias=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, given: Any) -> Any:
        """Rejects unknown keys, and suggests the nearest known key."""
        known = [field.alias or name for name, field in cls.model_fields.items()]
        for key in given if isinstance(given, dict) else ():
            if key not in known:
                facts = {"key": key, "hint": nearest(str(key), known)}
                raise PydanticCustomError("unknown_key", "unknown key {key}{hint}", facts)
        return given

    def plain(self) -> Record:
        """Returns the recipe as nested dictionaries and lists in its normal form: keys in the order of the
        model, defaults filled in, numbers in the type of their field."""
        return self.model_dump()


class _InnerOnly:
    """Removes None from the schema of an optional type. The key may be absent, but its value must not be
    null."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        schema = handler(source)
        return schema["schema"] if schema["type"] == "nullable" else schema


class _Unique:
    """Adds `uniqueItems` to the JSON Schema of a list."""

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> Record:
        return {**handler(schema), "uniqueItems": True}


def _distinct(values: list[T]) -> list[T]:
    if any(value in values[:number] for number, value in enumerate(values)):
        raise PydanticCustomError("not_unique", "{values} has non-unique elements", {"values": values})
    return values


class OneOf:
    """The type of a value of a table in `swelab.choices`. An alias is replaced by its value."""

    def __init__(self, table: Mapping[str, Choice]) -> None:
        self._table = table

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        names = core_schema.literal_schema(list(self._table))
        return core_schema.no_info_before_validator_function(partial(canonical, self._table), names)


OrAbsent = Annotated[T | None, _InnerOnly(), Field(exclude_if=lambda value: value is None)]
"""Type of an optional setting without a default. If the recipe does not contain the key, the value is None
and the dump omits the key."""
Distinct = Annotated[list[T], AfterValidator(_distinct), _Unique()]
"""A list whose items are unique."""
Word = Annotated[str, Field(min_length=1)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def nearest(word: str, words: list[str]) -> str:
    """Returns ' (did you mean ...?)' with the known word nearest to `word`, or '' if no word is similar."""
    match = difflib.get_close_matches(word, words, n=1)
    return f" (did you mean {match[0]!r}?)" if match else ""
