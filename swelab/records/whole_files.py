"""Writes files atomically: a temporary file in the same folder, then fsync, then rename."""

import fcntl
import glob
import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any


def share_with_group(folder: str | Path) -> None:
    """If `folder` is group-writable, sets the umask so that new files of this process are group-writable
    too."""
    try:
        shared = Path(folder).stat().st_mode & 0o020
    except OSError:
        return
    if shared:
        os.umask(os.umask(0o077) & ~0o020)


@contextmanager
def folder_for(path: Path) -> Iterator[Path]:
    """Creates the folder `path` if it does not exist. If the block fails, removes the new folders that are
    empty."""
    made = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(parents=True, exist_ok=True)
    try:
        yield path
    except BaseException:
        for each in made:
            with suppress(OSError):  # not empty: another process wrote into it
                each.rmdir()
        raise


@contextmanager
def atomic(path: str | Path, durable: bool = True) -> Iterator[IO[bytes]]:
    """Yields a binary stream. If the block ends without an exception, the written content becomes the file
    `path`.

    With several writers, the last writer wins. Temporary files of killed writers are removed. A live writer
    holds a lock on its temporary file. If `durable` is false, the write does not wait for the disk. Use this
    only if readers treat a damaged file as absent.
    """
    path = Path(path)
    with folder_for(path.parent):
        for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
            with suppress(OSError), open(part, "r+b") as stream:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()
        handle, name = _part(path)
        try:
            with os.fdopen(handle, "wb") as stream:
                yield stream
                stream.flush()
                if durable:
                    os.fsync(stream.fileno())
                os.chmod(name, 0o644 | path.parent.stat().st_mode & 0o020)
                os.replace(name, path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _part(path: Path) -> tuple[int, str]:
    """Creates and locks a temporary file in the folder of `path`. Returns (file descriptor, file name)."""
    while True:
        try:
            handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        except FileNotFoundError:  # another writer failed and removed the empty folder
            path.parent.mkdir(parents=True, exist_ok=True)
            continue
        with suppress(OSError):  # the file system may not support locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.exists(name):
            return handle, name
        os.close(handle)  # another writer removed the file before we locked it


def write_bytes(path: str | Path, data: bytes, durable: bool = True) -> None:
    """Writes `data` to `path` atomically."""
    with atomic(path, durable) as stream:
        stream.write(data)


def write_json(path: str | Path, record: Any) -> None:
    """Writes `record` as indented JSON atomically."""
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def line(record: Mapping[str, Any]) -> bytes:
    """Returns `record` as one line of JSON Lines. Lone surrogates are written as JSON escapes."""
    return (json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def write_jsonl(path: str | Path, records: Iterable[Mapping[str, Any]]) -> int:
    """Streams `records` to a JSON Lines file, one per line and atomically. Returns the number of records."""
    count = 0
    with atomic(path) as stream:
        for record in records:
            stream.write(line(record))
            count += 1
    return count
