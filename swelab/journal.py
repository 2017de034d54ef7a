"""Append-only journals: what makes a killed stage resumable.

A failed job loses its declared outputs, so finished work is written here, under
`results/progress/`, one line each, flushed to disk before it counts. A line names the content it
was made from (`key`); a line with another key is history, never an answer.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from swelab.records import InputError, Record, line


def lock(path: str | Path) -> IO[bytes]:
    """`path`, opened to append and held by this process until it closes it or ends, however it ends.

    Raises InputError when another process holds it.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    stream = open(path, "a+b")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        stream.close()
        raise InputError("in use by another process", path, "one run at a time") from None
    return stream


class Journal:
    """One journal file, open for one process at a time.

    Lines are {"key": str, ...}. A last line cut short by a kill is removed on opening. The body
    stays on disk: only the offset of each key's newest line is held, so memory does not grow with
    the size of trajectories.

    Raises InputError when another process has the journal open.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._stream = lock(path)
        self._offsets: dict[str, int] = {}
        self._recover()

    def _recover(self) -> None:
        self._stream.seek(0)
        end = 0
        for text in self._stream:
            if not text.endswith(b"\n"):
                break
            try:
                self._offsets[json.loads(text)["key"]] = end
            except (ValueError, KeyError, TypeError):
                raise InputError(f"damaged at byte {end}", self.path, "one JSON object a line") from None
            end += len(text)
        self._stream.truncate(end)

    def __contains__(self, key: str) -> bool:
        return key in self._offsets

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets)

    def get(self, key: str) -> Record:
        """The newest line of `key`. Raises KeyError."""
        with open(self.path, "rb") as stream:
            stream.seek(self._offsets[key])
            return json.loads(stream.readline())

    def append(self, *records: Record) -> None:
        """Writes a line each, with its `key`, and waits until they are on disk. Not thread-safe."""
        offset, offsets = self._stream.seek(0, os.SEEK_END), {}
        for record in records:
            offsets[record["key"]] = offset
            offset += self._stream.write(line(record))
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self._offsets |= offsets

    def close(self) -> None:
        self._stream.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
