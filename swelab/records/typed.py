"""Typed records: JSON objects with typed attributes. JSON Schemas are generated from the record classes.

A record is a dict, so that it is written exactly as it was read. Unknown fields, key order and nulls are
kept. Dataclasses, msgspec's structs and pydantic's models lose unknown fields, or bytes that are not UTF-8.
Reading takes 1.05 times as long as reading plain dicts.

A class declares the type, description and bounds of each field. mypy checks `grade.resolved` and
`Grade(resolved=...)`. At run time, creating a record checks nothing. `records.check` checks records when they
are read from files.
"""

import types
from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Annotated, Any, ClassVar, Literal, Self, dataclass_transform, get_args, get_origin

from swelab.outcomes import LISTS

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean", types.NoneType: "null"}
_MISSING: Any = object()
Schema = dict[str, Any]


class _Field:
    """The description, default and bounds of a field. The record class replaces this object by a property."""

    def __init__(self, about: str, default: Any, alias: str, bounds: Schema):
        self.about, self.default, self.alias, self.bounds = about, default, alias, bounds


class Bounds:
    """Additional JSON Schema keywords for a type, for use in `Annotated`."""

    def __init__(self, **words: Any):
        self.words = words


Count = Annotated[int, Bounds(minimum=0)]


def one_of(ends: str) -> Bounds:
    """Returns the bounds of a field whose values come from a list. ends: name of the list in
    `swelab.outcomes.LISTS`."""
    return Bounds(**{"$comment": f"swelab.outcomes {ends}", "enum": [str(end) for end in LISTS[ends]]})


def field(about: str, *, default: Any = _MISSING, alias: str = "", **bounds: Any) -> Any:
    """Declares a field of a record.

    default: value of the attribute if the field is absent. A field without a default is required. alias: name
    in the file, if the name is not a Python identifier. bounds: further JSON Schema keywords (minimum,
    pattern, enum).
    """
    return _Field(about, default, alias, bounds)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class TypedRecord(dict[str, Any]):
    """A JSON object with typed attributes. is_open: whether undeclared fields are allowed. also: further
    keywords of the record's schema."""

    __slots__ = ()
    is_open: ClassVar[bool] = True
    also: ClassVar[Schema] = {}
    declared: ClassVar[dict[str, tuple[Any, _Field]]] = {}
    _nested: ClassVar[list[tuple[str, Callable[[Any], Any]]]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name, told in [(name, told) for name, told in vars(cls).items() if isinstance(told, _Field)]:
            setattr(cls, name, _attribute(told.alias or name, told.default))
            cls.declared = cls.declared | {told.alias or name: (cls.__annotations__[name], told)}
        readers = ((name, _reader(kind)) for name, (kind, _) in cls.declared.items())
        cls._nested = [(name, reader) for name, reader in readers if reader]

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Converts a checked JSON object to a record. Nested objects are converted to their declared record
        types."""
        record = cls.__new__(cls)
        record.update(row)
        for name, reader in cls._nested:
            if name in record:
                record[name] = reader(record[name])
        return record

    def __or__(self, other: Mapping[str, Any]) -> Self:  # type: ignore[override]
        """Returns a copy of the record with the fields of `other` added or replaced."""
        return self.of({**self, **other})

    @classmethod
    def kind(cls) -> str:
        """Returns the name of the record's schema: the class SftRow has the schema `sft_row`."""
        return "".join(f"_{c.lower()}" if c.isupper() else c for c in cls.__name__).removeprefix("_")


class ClosedRecord(TypedRecord):
    """A record that allows no undeclared fields."""

    __slots__ = ()
    is_open = False


def _attribute(key: str, default: Any) -> property:
    if default is _MISSING:
        return property(itemgetter(key))
    return property(lambda record: record.get(key, default))


def _reader(kind: Any) -> Callable[[Any], Any] | None:
    """Returns a function that converts the records inside a value of this type, or None if the type contains
    no records."""
    if isinstance(kind, type) and issubclass(kind, TypedRecord):
        return kind.of
    arguments = get_args(kind)
    inner = next((reader for each in arguments if (reader := _reader(each))), None)
    if inner is None:
        return None
    if get_origin(kind) is list:
        return lambda value: [inner(each) for each in value]
    if get_origin(kind) is dict:
        return lambda value: {name: inner(each) for name, each in value.items()}
    return lambda value: value if value is None else inner(value)


def schema(record: type[TypedRecord]) -> Schema:
    """Returns the JSON Schema document of a record."""
    title = record.kind().replace("_", " ").capitalize().replace("Sft", "SFT")
    return {"$schema": DIALECT, "title": title, **_object(record)}


def _object(record: type[TypedRecord], about: str = "") -> Schema:
    fields = record.declared
    return {
        "type": "object",
        "description": about or " ".join((record.__doc__ or "").split()).removesuffix("."),
        "required": [name for name, (_, told) in fields.items() if told.default is _MISSING],
        "properties": {name: _value(kind, told.about) | told.bounds for name, (kind, told) in fields.items()},
        "additionalProperties": record.is_open,
        **record.also,
    }


def _value(kind: Any, about: str = "") -> Schema:
    """Returns the schema of a type, with the description `about`."""
    if isinstance(kind, type) and issubclass(kind, TypedRecord):
        return _object(kind, about)
    description: Schema = {"description": about} if about else {}
    if kind is Any:
        return description
    if kind in _SCALARS:
        return {"type": _SCALARS[kind]} | description
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return description | {"enum": list(arguments)}
    if hasattr(kind, "__metadata__"):  # Annotated
        bounds: Bounds = kind.__metadata__[0]
        return _value(arguments[0], about) | bounds.words
    if origin is list or kind is list:
        return {"type": "array"} | description | ({"items": _value(arguments[0])} if arguments else {})
    if origin is dict or kind is dict:
        inner = _value(arguments[1]) if arguments else {}
        return {"type": "object"} | description | ({"additionalProperties": inner} if inner else {})
    return _union([_value(each) for each in arguments]) | description


def _union(parts: list[Schema]) -> Schema:
    """Returns the schema of a union type. For a union of one type and None, this is the type's own schema,
    extended to allow null."""
    *others, last = parts
    if last != {"type": "null"} or len(others) != 1:
        return {"oneOf": parts}
    only = others[0]
    return only | ({"enum": [*only["enum"], None]} if "enum" in only else {"type": [only["type"], "null"]})
