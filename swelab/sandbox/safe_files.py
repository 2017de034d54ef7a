"""Reads and writes files in a folder whose content hostile code controls.

A path is followed from folder to folder. Each folder is opened from its open parent, without following
symlinks. So no symlink leads out of the folder, even if it is created meanwhile.
"""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from swelab.sandbox.protocol import WORKDIR, PathRefused

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# O_NONBLOCK, since opening a FIFO must not wait for a writer.
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_MOUNTS = {"tmp": "tmp", WORKDIR.strip("/"): "testbed"}
_ARRANGED = (
    *(errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.EACCES, errno.EPERM),
    *(errno.ENXIO, errno.ENODEV, errno.ENAMETOOLONG),
)


def locate(path: str) -> tuple[str, list[str]]:
    """Returns (private folder, components of the path below it) for a path in the sandbox.

    Raises PathRefused.
    """
    pure = PurePosixPath(WORKDIR) / path
    parts = pure.parts[1:]
    if "\0" in path or ".." in parts or len(parts) < 2 or parts[0] not in _MOUNTS:
        raise PathRefused(f"{path!r} is not a file path below {WORKDIR} or /tmp")
    return _MOUNTS[parts[0]], list(parts[1:])


def read_file(root: Path, path: str, max_bytes: int) -> bytes:
    """Returns the content of a regular file of at most `max_bytes` bytes.

    Raises PathRefused, FileNotFoundError.
    """
    with _explain_errors(path), _parent(root, path, None) as (parent, name):
        descriptor = os.open(name, _READ, dir_fd=parent)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise PathRefused(f"{path!r} is not a regular file")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(max_bytes + 1)
        finally:
            os.close(descriptor)
    if len(data) > max_bytes:
        raise PathRefused(f"{path!r} has more than {max_bytes} bytes")
    return data


def write_file(root: Path, path: str, data: bytes, owner: tuple[int, int]) -> None:
    """Writes a file atomically, by a rename. Replaces an existing file, and never writes through a link.

    Creates missing folders. Every new file and folder belongs to `owner` (uid, gid). Raises PathRefused,
    OSError.
    """
    with _explain_errors(path), _parent(root, path, owner) as (parent, name):
        mode = _replaced_mode(parent, name, path)
        temporary = f".swelab-{secrets.token_hex(8)}"
        descriptor = os.open(temporary, _WRITE, 0o600, dir_fd=parent)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                os.fchown(descriptor, *owner)
                os.fchmod(descriptor, mode)
            os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            os.unlink(temporary, dir_fd=parent)
            raise


@contextmanager
def _explain_errors(path: str) -> Iterator[None]:
    """Converts errors that sandboxed code can cause to PathRefused. A full disk remains an OSError."""
    try:
        yield
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no such file in the sandbox", path) from None
    except OSError as error:
        if error.errno not in _ARRANGED:
            raise
        raise PathRefused(
            f"{path!r} is, or crosses, a link or what cannot be opened: {error.strerror}"
        ) from None


@contextmanager
def _parent(root: Path, path: str, make: tuple[int, int] | None) -> Iterator[tuple[int, str]]:
    """Yields (descriptor of the folder that contains `path`, last component of `path`).

    make: (uid, gid) for missing folders. If it is None, missing folders are not created.
    """
    mount, parts = locate(path)
    here = os.open(root / mount, _FOLDER)
    try:
        for part in parts[:-1]:
            new = make is not None and _make_folder(part, here)
            below = os.open(part, _FOLDER, dir_fd=here)
            os.close(here)
            here = below
            if make is not None and new:
                os.fchown(here, *make)
                os.fchmod(here, 0o755)
        yield here, parts[-1]
    finally:
        os.close(here)


def _make_folder(name: str, parent: int) -> bool:
    try:
        os.mkdir(name, dir_fd=parent)
    except FileExistsError:
        return False
    return True


def _replaced_mode(parent: int, name: str, path: str) -> int:
    try:
        there = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    if not stat.S_ISREG(there.st_mode):
        raise PathRefused(f"{path!r} is there already and is not a regular file")
    return stat.S_IMODE(there.st_mode) & 0o777
