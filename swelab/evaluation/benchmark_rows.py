"""Reads the tasks of an evaluation from a file in any known format, or from a data set on the hub. An
unusable row is refused, and the reason is recorded. All usable rows are used."""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swelab.grading.harness.spec import read_spec
from swelab.records import InputError, check, check_text
from swelab.records.task_records import Task
from swelab.tasks.datasets_source import named_set, raw_rows
from swelab.tasks.harbor.harbor_folder import Refused
from swelab.tasks.harbor.harbor_source import read_rows
from swelab.tasks.published_rows import lacks, read_row

SHUFFLE_SEED = 42
"""The seed that mini-swe-agent's runner uses."""
NEEDED = {"empty_patch": "field patch is empty", "empty_FAIL_TO_PASS": "field FAIL_TO_PASS is empty"}


@dataclass(frozen=True)
class Source:
    """A source of rows. images: naming convention of images, for rows that have no image_name.

    entrypoint: test command of debugging tasks that name no command. test_seconds: time limit of a debugging
    task's tests, in seconds.
    """

    data: str
    split: str = "test"
    files: tuple[str, ...] = ()
    images: str = "swe-bench"
    entrypoint: str = ""
    test_seconds: int = 30

    def rows(self) -> Iterator[tuple[str, Any]]:
        """Yields (location of the row in the source, published row). Raises InputError, HubError."""
        path = Path(self.data)
        if path.is_dir():
            yield from ((str(folder), row) for folder, row in read_rows(path, read_spec))
            return
        if path.is_file() and path.suffix == ".jsonl":
            yield from _lines(path)
        else:
            yield from raw_rows(
                named_set(self.data, self.split, self.files, "Harbor's folders, or owner/set")
            )

    @property
    def name(self) -> str:
        """The subset's name in records: the name of the file or folder, or the data set's name with its
        split."""
        path = Path(self.data)
        if path.is_dir():
            return path.resolve().name
        if path.is_file():
            return path.stem
        return f"{self.data.partition('@')[0].replace('/', '--')}-{self.split}"


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields the rows of a JSON Lines file. A line that is not valid JSON is yielded as a string."""
    with open(path, encoding="utf-8-sig", errors="surrogateescape") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                try:
                    yield f"{path}, line {number}", json.loads(line)
                except (ValueError, RecursionError):
                    yield f"{path}, line {number}", line


@dataclass
class Benchmark:
    """The tasks of a source. tasks: the usable tasks, in order. refused: maps the location of each refused
    row to the reason. rows: number of all rows."""

    tasks: list[Task] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    rows: int = 0

    def refuse(self, name: str, reason: str) -> None:
        """Removes a task, and records why it is refused."""
        self.tasks = [task for task in self.tasks if task.instance_id != name]
        self.refused[name] = reason

    def reasons(self) -> list[str]:
        """Returns one line for each reason, with the number of refused rows and the location of the first."""
        text = {where: reason.removeprefix(f"{where}: ") for where, reason in self.refused.items()}
        counts = Counter(text.values())
        first = {reason: where for where, reason in reversed(list(text.items()))}
        return [f"{count} refused, such as {first[reason]}: {reason}" for reason, count in counts.items()]


def read_benchmark(source: Source) -> Benchmark:
    """Reads all usable rows of `source`, in order. Raises HubError, and InputError if there is no file or no
    usable row."""
    benchmark, tasks_by_id = Benchmark(), dict[str, Task]()
    for where, raw in source.rows():
        benchmark.rows += 1
        try:
            task = _task(raw, where, source.images)
        except InputError as error:
            benchmark.refused[where] = str(error)
            continue
        known = tasks_by_id.setdefault(task.instance_id, task)
        if known is task:
            benchmark.tasks.append(task)
        elif known != task:
            benchmark.refused[where] = (
                f"instance_id {task.instance_id} is also that of an earlier, different row"
            )
        else:
            benchmark.refused[where] = "the same row stands before it"
    if not benchmark.tasks:
        first = next(iter(benchmark.refused.values()), "it has no row")
        raise InputError(f"none of {benchmark.rows} rows can be used: {first}", source.data)
    return benchmark


def _task(raw: Any, where: str, images: str) -> Task:
    """Converts a row to a task that can be attempted and graded here. Raises InputError."""
    if isinstance(raw, str):
        raise InputError("not JSON", where, "one JSON object a line")
    if isinstance(raw, Refused):
        raise InputError(str(raw), where)
    task = read_row(raw, where, images)
    if missing := lacks(task):
        raise InputError(NEEDED.get(missing, missing), where, "a row with patch and tests")
    return checked_task(task, where)


def checked_task(task: Task, where: str) -> Task:
    """Returns the task unchanged. Raises InputError if the task cannot be attempted and graded."""
    check(task, Task, where)
    check_text(task, where)
    if task.instance_id.startswith("."):
        raise InputError(f"{task.instance_id!r} cannot name a folder", where, "an id of another form")
    read_spec(task)
    return task


def select_tasks(
    tasks: Iterable[Task],
    *,
    pattern: str = "",
    part: str = "",
    most: int = 0,
    ids: Iterable[str] = (),
    shuffled: bool = False,
) -> list[Task]:
    """Selects tasks by `pattern` and `ids`. Then shuffles them if `shuffled`, and applies `part` and `most`.

    pattern: regular expression that must match at the start of the id. part: a slice as in Python,
    "start:stop" or "start:stop:step". ids: if not empty, the only ids to keep. shuffled: shuffles with a
    fixed seed. most: maximum number of tasks. 0 means all. Raises InputError if the slice or the pattern is
    malformed, an id is unknown, or no task is left.
    """
    selection, names = list(tasks), set(ids)
    if strangers := sorted(names - {task.instance_id for task in selection}):
        raise InputError(
            f"--instance-ids: {len(strangers)} ids belong to no usable row, such as {strangers[0]}"
        )
    try:
        selection = [task for task in selection if re.match(pattern, task.instance_id)]
    except re.error as error:
        raise InputError(f"--filter {pattern!r}: {error}", expected="a regular expression") from None
    selection = [task for task in selection if not names or task.instance_id in names]
    if shuffled:
        random.Random(SHUFFLE_SEED).shuffle(selection)
    selection = selection[slice_of(part)]
    selection = selection[:most] if most else selection
    if not selection:
        raise InputError("no task is left", expected="a wider --filter, --slice or --instance-ids")
    return selection


def slice_of(text: str) -> slice:
    """Parses a Python slice. The empty string selects everything. Raises InputError."""
    if not text:
        return slice(None)
    if not re.fullmatch(r"(-?\d+)?:(-?\d+)?(:-?[1-9]\d*)?", text):
        raise InputError(f"--slice {text!r}", expected="start:stop, such as 0:50")
    return slice(*(int(each) if each else None for each in text.split(":")))
