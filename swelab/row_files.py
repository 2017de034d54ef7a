"""Rows of a published set: its files on the hub or copies of them, in JSON, JSON Lines or Parquet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from swelab.hub import Repository
from swelab.records import InputError, Record, read_jsonl
from swelab.streams import list_items

FORMATS = (".jsonl", ".json", ".parquet")


def published_files(recipe: Record, downloads: Path) -> list[Path]:
    """The files of a set on the hub, fetched into `downloads` as far as they are not there yet.

    recipe: {"dataset", "revision", "split", "files", "sha256"}. Raises InputError, HubError.
    """
    repository = Repository(recipe["dataset"], recipe["revision"], "dataset")
    folder = downloads / recipe["dataset"].replace("/", "--") / recipe["revision"]
    patterns = recipe["files"] or [f"data/{recipe['split']}-*.parquet"]
    return [folder / name for name in repository.fetch(folder, patterns, recipe["sha256"])]


def read_rows(path: Path, at_once: int) -> Iterator[Any]:
    """Rows of one file; of a Parquet file `at_once` are held. Times are text. Raises InputError."""
    if path.suffix == ".jsonl":
        return read_jsonl(path)
    if path.suffix == ".parquet":
        return _parquet(path, at_once)
    return (row for _, row in list_items(path))


def _parquet(path: Path, at_once: int) -> Iterator[Any]:
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            times = [column.name for column in file.schema_arrow if pyarrow.types.is_temporal(column.type)]
            for batch in file.iter_batches(batch_size=at_once):
                for row in batch.to_pylist():
                    yield row | {name: row[name] and row[name].isoformat() for name in times}
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"cannot be read: {error}", path, "a Parquet file") from None
