"""Reads the rows of a published data set from JSON, JSON Lines or Parquet files, on the hub or local."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swelab.files.hf_hub import HubRepository
from swelab.files.json_streams import list_items
from swelab.records import InputError, read_jsonl

FORMATS = (".jsonl", ".json", ".parquet", ".parquets")


def published_files(
    dataset: str, revision: str, split: str, files: list[str], sha256: dict[str, str], downloads: Path
) -> list[Path]:
    """Downloads the missing files of a hub data set into `downloads`. Returns the paths of all its files.

    files: shell patterns of file names. If the list is empty, the files of the split are used. sha256: maps a
    file name to the hash that the file must have. Raises InputError, HubError.
    """
    repository = HubRepository(dataset, revision, "dataset")
    folder = downloads / dataset.replace("/", "--") / revision
    patterns = files or [f"data/{split}-*.parquet"]
    return [folder / name for name in repository.fetch(folder, patterns, sha256)]


def read_rows(path: Path, at_once: int) -> Iterator[Any]:
    """Yields the rows of one file. Times are returned as text. at_once: number of rows in memory, for Parquet
    files. Raises InputError."""
    if path.suffix == ".jsonl":
        return read_jsonl(path)
    if path.suffix in (".parquet", ".parquets"):
        return _parquet(path, at_once)
    return (row for _, row in list_items(path))


def _parquet(path: Path, at_once: int) -> Iterator[Any]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            times, floats = _columns(file.schema_arrow, path)
            for batch in file.iter_batches(batch_size=at_once):
                for row in batch.to_pylist():
                    times_as_text = {name: row[name] and row[name].isoformat() for name in times}
                    numbers = {name: _present(row[name], f"{path}, column {name}") for name in floats}
                    yield row | times_as_text | numbers
    except (OSError, OverflowError, ValueError, pyarrow.ArrowException) as error:
        raise InputError(f"cannot be read: {error}", path, "a Parquet file") from None


def _columns(schema: Any, path: Path) -> tuple[list[str], list[str]]:
    """Returns the names of the columns that contain times, and of those that contain floats at any depth.
    Raises InputError if JSON cannot represent a column."""
    from pyarrow import types

    floats = dict[str, None]()
    for column in schema:
        kinds = [column.type]
        while kinds:
            kind = kinds.pop()
            if types.is_floating(kind):
                floats[column.name] = None
            inner = [kind.field(number).type for number in range(kind.num_fields)]
            kinds += [kind.value_type] if types.is_dictionary(kind) else inner
            nested_time = types.is_temporal(kind) and kind is not column.type
            if types.is_decimal(kind) or "binary" in str(kind) or types.is_duration(kind) or nested_time:
                expected = "text, numbers, booleans, times, and lists and structs of them"
                raise InputError(f"column {column.name} holds {kind}", path, expected)
    return [column.name for column in schema if types.is_temporal(column.type)], list(floats)


def _present(value: Any, where: str) -> Any:
    """Returns a value with None for NaN at any depth, because pandas writes NaN for missing values. Raises
    InputError for infinity, which JSON cannot represent."""
    if isinstance(value, float) and not math.isfinite(value):
        if math.isinf(value):
            raise InputError(f"holds {value}", where, "finite numbers")
        return None
    if isinstance(value, list):
        return [_present(each, where) for each in value]
    if isinstance(value, dict):
        return {name: _present(each, where) for name, each in value.items()}
    return value
