"""The tasks of an evaluation: rows of a file in any form that we read, or of a set on the hub.

A row that cannot be used is refused with its reason; the others go on.
"""

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swelab.configs.kinds.subset import DatasetSubset
from swelab.files.hub_commits import newest_commit
from swelab.grading.harness.spec import read_spec
from swelab.records import InputError, check, check_text
from swelab.records.task_records import Task
from swelab.tasks.datasets_source import raw_rows
from swelab.tasks.published_rows import lacks, read_row

HUB_NAME = re.compile(r"(?P<name>[A-Za-z0-9._-]+/[A-Za-z0-9._-]+)(@(?P<commit>[0-9a-f]{40}))?")
SHUFFLE_SEED = 42
"""As of mini-swe-agent's runner."""
NEEDED = {"empty_patch": "field patch is empty", "empty_FAIL_TO_PASS": "field FAIL_TO_PASS is empty"}


@dataclass(frozen=True)
class Source:
    """Where rows come from. images: naming convention of the images of rows that name none."""

    data: str
    split: str = "test"
    files: tuple[str, ...] = ()
    images: str = "swe-bench"

    def rows(self) -> Iterator[tuple[str, Any]]:
        """(where it stands, row as it was published). Raises InputError, HubError."""
        path = Path(self.data)
        if path.is_file():
            yield from _lines(path) if path.suffix == ".jsonl" else raw_rows(_subset(path=self.data))
            return
        found = HUB_NAME.fullmatch(self.data)
        if not found or path.suffix in (".json", ".jsonl", ".parquet"):
            raise InputError(
                "no such file", self.data, "a JSON list, JSON Lines, Parquet, or owner/set of the hub"
            )
        commit = found["commit"] or newest_commit(found["name"], "dataset")
        named = {"dataset": found["name"], "revision": commit, "split": self.split, "files": list(self.files)}
        yield from raw_rows(_subset(**named))

    @property
    def name(self) -> str:
        """The subset's name in records: the file's, or the set's with its split."""
        path = Path(self.data)
        if path.is_file():
            return path.stem
        return f"{self.data.partition('@')[0].replace('/', '--')}-{self.split}"


def _subset(**named: Any) -> DatasetSubset:
    return DatasetSubset(source="dataset", **named)


def _lines(path: Path) -> Iterator[tuple[str, Any]]:
    """JSON Lines, of which a broken one is given as its text."""
    with open(path, encoding="utf-8-sig", errors="surrogateescape") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                try:
                    yield f"{path}, line {number}", json.loads(line)
                except (ValueError, RecursionError):
                    yield f"{path}, line {number}", line


@dataclass
class Benchmark:
    """tasks: what is attempted, in the rows' order; refused: reason by where a row stands; rows: how many."""

    tasks: list[Task] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    rows: int = 0

    def refuse(self, name: str, reason: str) -> None:
        """Leaves a task out after all."""
        self.tasks = [task for task in self.tasks if task.instance_id != name]
        self.refused[name] = reason

    def reasons(self) -> list[str]:
        """One line on each reason for which rows were refused, with the first such row."""
        text = {where: reason.removeprefix(f"{where}: ") for where, reason in self.refused.items()}
        counts = Counter(text.values())
        first = {reason: where for where, reason in reversed(list(text.items()))}
        return [f"{count} refused, such as {first[reason]}: {reason}" for reason, count in counts.items()]


def read_benchmark(source: Source) -> Benchmark:
    """All usable rows of `source`, in their order. Raises InputError: no file, no usable row; HubError."""
    found, seen = Benchmark(), dict[str, Task]()
    for where, raw in source.rows():
        found.rows += 1
        try:
            task = _task(raw, where, source.images)
        except InputError as error:
            found.refused[where] = str(error)
            continue
        known = seen.setdefault(task.instance_id, task)
        if known is task:
            found.tasks.append(task)
        elif known != task:
            found.refused[where] = f"instance_id {task.instance_id} is also that of an earlier, different row"
        else:
            found.refused[where] = "a row that was there already"
    if not found.tasks:
        first = next(iter(found.refused.values()), "it has no row")
        raise InputError(f"none of {found.rows} rows can be used: {first}", source.data)
    return found


def _task(raw: Any, where: str, images: str) -> Task:
    """A row as a task that can be attempted and judged here. Raises InputError."""
    if isinstance(raw, str):
        raise InputError("not JSON", where, "one JSON object a line")
    task = read_row(raw, where, images)
    if missing := lacks(task):
        raise InputError(NEEDED.get(missing, missing), where, "a row with patch and tests")
    check(task, "task", where)
    check_text(task, where)
    if task.instance_id.startswith("."):
        raise InputError(f"{task.instance_id!r} cannot name a folder", where, "an instance id")
    read_spec(task)
    return task


def chosen(
    tasks: Iterable[Task],
    *,
    pattern: str = "",
    part: str = "",
    most: int = 0,
    ids: Iterable[str] = (),
    shuffled: bool = False,
) -> list[Task]:
    """The tasks to attempt: those that match, of these a slice, of these the first ones.

    pattern: regular expression that an id begins with; part: "start:stop" or "start:stop:step" as in Python;
    ids: exactly these; shuffled: in an order that is always the same. Raises InputError: no such slice or
    pattern, unknown ids, nothing left.
    """
    found, wanted = list(tasks), set(ids)
    if strangers := sorted(wanted - {task.instance_id for task in found}):
        raise InputError(
            f"--instance-ids: {len(strangers)} ids belong to no usable row, such as {strangers[0]}"
        )
    try:
        found = [task for task in found if re.match(pattern, task.instance_id)]
    except re.error as error:
        raise InputError(f"--filter {pattern!r}: {error}", expected="a regular expression") from None
    found = [task for task in found if not wanted or task.instance_id in wanted]
    if shuffled:
        random.Random(SHUFFLE_SEED).shuffle(found)
    found = found[slice_of(part)]
    found = found[:most] if most else found
    if not found:
        raise InputError("no task is left", expected="a wider --filter, --slice or --instance-ids")
    return found


def slice_of(text: str) -> slice:
    """A Python slice from its text; '' is all. Raises InputError."""
    if not text:
        return slice(None)
    if not re.fullmatch(r"(-?\d+)?:(-?\d+)?(:-?[1-9]\d*)?", text):
        raise InputError(f"--slice {text!r}", expected="start:stop, such as 0:50")
    return slice(*(int(each) if each else None for each in text.split(":")))
