"""Source of tasks `dataset`: a published set in SWE-smith's or SWE-bench's schema, or a local copy of one."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from swelab.hub import Repository
from swelab.records import InputError, Record, read_jsonl
from swelab.streams import Picked, Spool, list_items

DOWNLOADS = Path("results/downloads/datasets")

LISTS = ("FAIL_TO_PASS", "PASS_TO_PASS")
REQUIRED = ("instance_id", "repo", "patch", *LISTS)


def make_tasks(recipe: Record, downloads: Path = DOWNLOADS) -> tuple[Sequence[Record], dict[str, int]]:
    """Rows of a published set that meet the recipe's criteria, and how many were dropped by reason.

    Rows keep all their keys; lists written as JSON strings become lists. With a larger limit the
    first rows are the same. A row means what its publisher says: SWE-smith's `patch` is the bug,
    SWE-bench's is the fix. `downloads` keeps the files of published sets. Raises InputError naming the file,
    the row and the field; HubError.
    """
    where = recipe.get("path") or f"{recipe.get('dataset')}, split {recipe['split']}"
    drops: Counter[str] = Counter()
    kept: dict[str, int] = {}
    spool = Spool()
    for number, raw in enumerate(_rows(recipe, downloads)):
        row = _parse(raw, f"{where}, row {number}")
        reason = _misses(row, recipe["criteria"])
        if reason:
            drops[reason] += 1
        elif row["instance_id"] not in kept:
            kept[row["instance_id"]] = spool.add(row)
        elif spool.get(kept[row["instance_id"]]) == row:
            drops["repeated_row"] += 1
        else:
            raise InputError(
                f"another row is {row['instance_id']} too", f"{where}, row {number}", "unique ids"
            )
    if not kept:
        raise InputError(f"no row meets the criteria ({dict(drops)})", where)
    order = [kept[name] for name in sorted(kept, key=lambda name: _draw(recipe["seed"], name))]
    limit = recipe["limit"] or len(order)
    if len(order) > limit:
        drops["over_limit"] = len(order) - limit
    return Picked(spool, order[:limit]), dict(sorted(drops.items()))


def _draw(seed: int, instance: str) -> str:
    return hashlib.sha256(f"{seed}\n{instance}".encode()).hexdigest()


def _rows(recipe: Record, downloads: Path) -> Iterator[Any]:
    if path := recipe.get("path"):
        yield from _local(Path(path))
    elif not recipe.get("dataset") or not recipe.get("revision"):
        raise InputError(
            "neither path nor dataset with revision", "subset recipe", "where the rows come from"
        )
    else:
        for file in _published(recipe, downloads):
            yield from _local(file)


def _published(recipe: Record, downloads: Path) -> list[Path]:
    """The files of a published set, fetched as far as they are not there yet."""
    repository = Repository(recipe["dataset"], recipe["revision"], "dataset")
    folder = downloads / recipe["dataset"].replace("/", "--") / recipe["revision"]
    patterns = recipe["files"] or [f"data/{recipe['split']}-*.parquet"]
    return [folder / name for name in repository.fetch(folder, patterns, recipe["sha256"])]


def _local(path: Path) -> Iterator[Any]:
    if path.suffix == ".jsonl":
        return read_jsonl(path)
    if path.suffix == ".parquet":
        return _parquet(path)
    return (row for _, row in list_items(path))


def _parquet(path: Path) -> Iterator[Any]:
    """Rows of a Parquet file, some at a time: a published set is larger than what is kept of it."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=256):
                yield from batch.to_pylist()
    except (OSError, pyarrow.ArrowException) as error:
        raise InputError(f"cannot be read: {error}", path, "a Parquet file") from None


def _parse(raw: Any, where: str) -> Record:
    if not isinstance(raw, dict):
        raise InputError(f"a {type(raw).__name__}", where, "a JSON object")
    row = dict(raw)
    for name in REQUIRED:
        if row.get(name) in (None, ""):
            raise InputError(f"field {name} is missing or empty", where, "a row in SWE-smith's schema")
    for name in LISTS:
        row[name] = _tests(row[name], f"{where} ({row['instance_id']})", name)
    if not row["FAIL_TO_PASS"]:
        raise InputError(
            "field FAIL_TO_PASS is empty", f"{where} ({row['instance_id']})", "at least one test"
        )
    row.setdefault("problem_statement", "")
    row["image_name"] = row.get("image_name") or image_name(row["instance_id"])
    row.setdefault("source", "dataset")
    return row


def image_name(instance: str) -> str:
    """The image of a SWE-bench instance whose row names none, by that benchmark's convention."""
    return f"swebench/sweb.eval.x86_64.{instance.replace('__', '_1776_').lower()}:latest"


def _tests(value: Any, where: str, field: str) -> list[str]:
    """A list of test ids; SWE-bench writes it as a JSON string."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            raise InputError(f"field {field} is no JSON list", where, "a list of test ids") from None
    if not isinstance(value, list) or not all(isinstance(test, str) and test for test in value):
        raise InputError(f"field {field} is no list of strings", where, "a list of test ids")
    return value


def _misses(row: Record, criteria: Record) -> str:
    """The first criterion that a row does not meet, or ""."""
    count, most = len(row["FAIL_TO_PASS"]), criteria["max_fail_to_pass"]
    if not re.search(_pattern(criteria["id_pattern"]), row["instance_id"]):
        return "id_pattern"
    if criteria["repos"] and row["repo"] not in criteria["repos"]:
        return "repos"
    if count < criteria["min_fail_to_pass"]:
        return "min_fail_to_pass"
    return "max_fail_to_pass" if most and count > most else ""


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        raise InputError(f"id_pattern {text!r}: {error}", "subset recipe", "a regular expression") from None
