"""The lock of a subset: which of its tasks passed validation, and why the others did not.

Every later stage works on the kept tasks only.
"""

from pathlib import Path

from swelab.records import InputError, Record, check, digest, load_tasks, read_json


def kept_tasks(tasks: str | Path, lock: str | Path | None) -> list[Record]:
    """The rows of a subset that its lock keeps, in their order; all of them without a lock.

    Raises InputError when the lock is of other rows, or keeps none.
    """
    rows = load_tasks(tasks)
    if lock is None:
        return rows
    record = read_lock(lock)
    kept = {row["instance_id"]: row["task"] for row in record["kept"]}
    known = set(kept) | {row["instance_id"] for part in ("flaky", "broken") for row in record[part]}
    for row in rows:
        name = row["instance_id"]
        if name not in known or (name in kept and kept[name] != digest(row)):
            raise InputError(f"{name} is not the task that was validated", lock, f"a lock of {tasks}")
    found = [row for row in rows if row["instance_id"] in kept]
    if len(found) != len(kept):
        raise InputError(
            f"it keeps {len(kept) - len(found)} tasks that are not there", lock, f"a lock of {tasks}"
        )
    return found


def read_lock(path: str | Path) -> Record:
    """A lock that was checked against its schema. Raises InputError."""
    record = read_json(path)
    check(record, "lock", path)
    return record
