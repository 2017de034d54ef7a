"""The lock of a subset: the tasks that passed validation, and why the other tasks did not.
Later stages use only the tasks that passed. These have a separate file."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from swelab.files.json_streams import KeyFilter, Outline
from swelab.records import InputError, digest, read_record
from swelab.records.task_records import NULL_ONLY, KeptTask, Lock, Task
from swelab.tasks.task_rows import read_tasks


def read_kept(
    tasks: str | Path, lock: str | Path | None, key_filter: KeyFilter | None = None
) -> Iterator[Task]:
    """Yields the rows of a subset that its lock keeps, in order; without a lock, all rows.

    key_filter: accepts the instance ids to yield. Raises InputError if the lock belongs to other rows, or
    keeps rows that are missing.
    """
    if lock is None:
        yield from read_tasks(tasks, key_filter)
        return
    digests, left_out = _names(lock, key_filter)
    for task in read_tasks(tasks, key_filter):
        name = task.instance_id
        if name in left_out:
            continue
        if digests.pop(name, "") != digest(task):
            raise InputError(f"{name} is not the task that was validated", lock, f"a lock of {tasks}")
        yield task
    if digests:
        raise InputError(f"keeps {len(digests)} tasks that the subset lacks", lock, f"a lock of {tasks}")


def lock_of_part(tasks: Iterable[Task], whole: Lock, where: str | Path) -> Lock:
    """Returns a lock for some of the tasks that the lock `whole` keeps, without another validation.
    where: path of the lock `whole`. Raises InputError for a task that `whole` does not keep."""
    known = {row.instance_id: row for row in whole.kept}
    outline, kept_tasks = Outline(), list[KeptTask]()
    for task in map(outline.add, tasks):
        row = known.get(task.instance_id)
        if row is None or row.task != digest(task):
            raise InputError(
                f"does not keep {task.instance_id} as it is", where, "the lock of all these tasks"
            )
        kept_tasks.append(row)
    settings = whole.settings
    part = Lock(
        tasks_digest=outline.digest,
        total=len(kept_tasks),
        settings=settings,
        kept=kept_tasks,
        flaky=[],
        broken=[],
    )
    null_tasks = sum(row.validated == NULL_ONLY for row in kept_tasks)
    return part | ({"null_tasks": null_tasks} if null_tasks else {})


def _names(lock: str | Path, key_filter: KeyFilter | None) -> tuple[dict[str, str], set[str]]:
    """Reads a lock. Returns ({id of a kept task: hash of its row}, ids of tasks to skip).
    Kept tasks that `key_filter` does not accept are omitted."""
    record = read_lock(lock)
    kept = {row.instance_id: row.task for row in record.kept}
    left_out = {row.instance_id for part in (record.flaky, record.broken, record.unjudged) for row in part}
    if key_filter is not None:
        kept = {name: value for name, value in kept.items() if key_filter(name)}
    return kept, left_out - set(kept)


def read_lock(path: str | Path) -> Lock:
    """Reads a lock and checks it against its schema. Raises InputError."""
    return read_record(path, Lock)
