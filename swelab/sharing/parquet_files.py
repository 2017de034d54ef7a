"""Writes rows to a Parquet file in batches of a thousand."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from swelab.records import atomic
from swelab.sharing.privacy import Private

Columns = Mapping[str, str]
"""Maps each column to its type: text, number, flag, texts or turns."""
AT_ONCE = 1000


def write_parquet(path: Path, rows: Iterable[Mapping[str, Any]], columns: Columns, private: Private) -> int:
    """Writes the given columns of rows. Private keys and paths are replaced. Returns the number of rows.
    Values in a text column that are not strings are written as JSON."""
    import pyarrow
    import pyarrow.parquet

    text = pyarrow.string()
    turn = pyarrow.struct([(name, text) for name in TURN])
    types = {
        "text": text,
        "number": pyarrow.int64(),
        "flag": pyarrow.bool_(),
        "texts": pyarrow.list_(text),
        "turns": pyarrow.list_(turn),
    }
    schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
    count = 0
    with atomic(path) as stream, pyarrow.parquet.ParquetWriter(stream, schema, compression="zstd") as writer:
        for some in _batches(rows):
            plain = [
                {name: _value(row.get(name), kind, private) for name, kind in columns.items()} for row in some
            ]
            writer.write_table(pyarrow.Table.from_pylist(plain, schema))
            count += len(plain)
    return count


TURN = ("role", "content", "tool_calls")
"""Fields of a message. Values that are not strings are written as JSON, and missing values as ""."""


def _batches(rows: Iterable[Mapping[str, Any]]) -> Iterable[list[Mapping[str, Any]]]:
    some: list[Mapping[str, Any]] = []
    for row in rows:
        some.append(row)
        if len(some) == AT_ONCE:
            yield some
            some = []
    if some:
        yield some


def _value(value: Any, kind: str, private: Private) -> Any:
    if kind == "turns":
        return [{name: _text(turn.get(name), private) for name in TURN} for turn in value or []]
    if kind == "texts":
        return [_text(each, private) for each in value or []]
    return _text(value, private) if kind == "text" else value


def _text(value: Any, private: Private) -> str:
    if value is None:
        return ""
    plain = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return private.clean(plain.encode("utf-8", "backslashreplace").decode())
