"""Append-only journals, from which a killed stage resumes.

A failed job loses its declared outputs. So finished work is written to a journal under `results/progress/`,
one line for each item. A line counts once it is on disk. Its `key` identifies the inputs of the item. A line
with another key is not used.
"""

import errno
import fcntl
import json
import os
import pwd
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from swelab.records import InputError, Kind, Record, as_record, line


def lock(path: str | Path) -> IO[bytes]:
    """Opens `path` for appending, and locks the file until it is closed or this process ends.

    Raises InputError if another process holds the lock, or if this user may not write the file.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        stream = open(path, "a+b")
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        told = f"cannot be written ({error.strerror}){owner(path)}"
        raise InputError(told, path, "a folder that this user may write, such as one of its group") from None
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        stream.close()
        raise InputError("in use by another process", path, "one run at a time") from None
    return stream


def read_journal(path: str | Path) -> Iterator[Record]:
    """Yields the lines of a journal that no process is writing, oldest first. Damaged lines are left out."""
    with open(path, "rb") as stream:
        yield from (record for _, record in _lines(stream) if record is not None)


def _lines(stream: IO[bytes]) -> Iterator[tuple[bytes, Record | None]]:
    """Yields (text, record) of each complete line. record is None for a damaged line."""
    for text in stream:
        if not text.endswith(b"\n"):
            return
        try:
            record = json.loads(text)
            yield text, record if isinstance(record["key"], str) else None
        except (ValueError, KeyError, TypeError, RecursionError):
            yield text, None


def owner(path: Path) -> str:
    """Returns a clause that names the owner of a file, or of the first existing folder above it."""
    there = next((each for each in (path, *path.parents) if os.access(each, os.F_OK)), None)
    if there is None:
        return ""
    user = there.stat().st_uid
    try:
        return f"; {there} belongs to {pwd.getpwuid(user).pw_name}"
    except KeyError:
        return f"; {there} belongs to user {user}"


class Journal:
    """One journal file, open for one process at a time.

    Lines are {"key": str, ...}. An incomplete last line, which a kill leaves, is removed on opening. Damaged
    lines before it count as absent. Their number is printed to standard error. Memory holds only the offset
    of the newest line of each key, so it does not grow with the size of trajectories.
    Raises InputError if another process has the journal open, or if none of its lines can be read.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._stream = lock(path)
        self._offsets: dict[str, int] = {}
        self._recover()

    def _recover(self) -> None:
        self._stream.seek(0)
        end, damaged = 0, []
        for number, (text, record) in enumerate(_lines(self._stream), 1):
            if record is None:
                damaged.append(number)
            else:
                self._offsets[record["key"]] = end
            end += len(text)
        if damaged and not self._offsets:
            raise InputError("damaged: no line can be read", self.path, "a journal; move it away to start")
        if damaged:
            told = f"{len(damaged)} damaged lines (the first is line {damaged[0]}) count as absent"
            print(f"note: {self.path}: {told}: what they held is done again", file=sys.stderr)
        self._stream.truncate(end)

    def __contains__(self, key: str) -> bool:
        return key in self._offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets)

    def get(self, key: str) -> Record:
        """Returns the newest line of `key`. Raises KeyError."""
        with open(self.path, "rb") as stream:
            stream.seek(self._offsets[key])
            record: Record = json.loads(stream.readline())
        return record

    def record(self, key: str, kind: type[Kind]) -> Kind:
        """Returns the newest record of `key`, without the time of writing. Raises KeyError, and InputError if
        the line is no record of this kind."""
        row = {name: value for name, value in self.get(key).items() if name != "journalled"}
        return as_record(row, kind, self.path)

    def append(self, *records: Record) -> None:
        """Writes a line for each record, and waits until all are on disk. Not thread-safe."""
        offset, offsets = self._stream.seek(0, os.SEEK_END), {}
        for record in records:
            offsets[record["key"]] = offset
            offset += self._stream.write(line(record))
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._offsets |= offsets

    def close(self) -> None:
        """Closes the file. Appended lines are on disk already."""
        self._stream.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
