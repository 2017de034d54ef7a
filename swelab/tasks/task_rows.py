"""Reads task rows of a subset one at a time, because 50,000 rows take some hundred megabytes."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from swelab.files.json_streams import KeyFilter, list_items
from swelab.records import InputError, as_record, check_text, shorten
from swelab.records.task_records import Task


def read_tasks(path: str | Path, key_filter: KeyFilter | None = None) -> Iterator[Task]:
    """Yields the rows of a subset JSON: task rows in SWE-smith's schema, with additional fields of ours.

    Only rows whose instance id passes `key_filter` are checked and yielded. Raises InputError for a list
    without a row, and for a row that lacks a field, has no FAIL_TO_PASS, or repeats an instance_id.
    """
    task = None
    for task in check_rows(list_items(path, key_filter), path):
        yield task
    if task is None and next(list_items(path), None) is None:
        raise InputError("holds no task", path, "at least one")


def check_rows(rows: Iterable[tuple[int, Any]], path: str | Path) -> Iterator[Task]:
    """Checks and yields the row of each (number, row) pair. Raises InputError as `read_tasks` does."""
    lines: dict[str, int] = {}
    for number, row in rows:
        where = f"{path}, row {number}"
        if isinstance(row, dict) and "instance_id" in row:
            where += f" ({shorten(str(row['instance_id']))})"
        task = as_record(row, Task, where)
        check_text(task, where)
        first = lines.setdefault(task.instance_id, number)
        if first != number:
            raise InputError(f"the same instance_id as row {first}", where, "unique ids")
        yield task


def slim(task: Task) -> Task:
    """Returns only the id of a task and the fields that name its image or its repository archive."""
    names = ("instance_id", "image", "image_name", "repo_recipe", "answers")
    found = Task.of({name: task[name] for name in names if name in task})
    return found | {"files": [each | {"content": ""} for each in task.files[:1]]} if task.files else found
