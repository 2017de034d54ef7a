"""Streams a source tree of any size as a tar, in bounded memory."""

import errno
import os
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_folder(tree: Path) -> None:
    """Raises OSError if `tree` is not a folder."""
    if not stat.S_ISDIR(os.stat(tree).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(tree))


@contextmanager
def archive(tree: Path) -> Iterator[Iterator[bytes]]:
    """Yields an iterator over the chunks of a tar stream of the folder.

    Raises OSError if there is no such folder, or if it cannot be read.
    """
    check_folder(tree)
    process = subprocess.Popen(
        ["tar", "-cf", "-", "-C", str(tree), "."],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout
    try:
        yield iter(lambda: process.stdout.read(1 << 20), b"")  # type: ignore[union-attr]
    finally:
        process.stdout.close()
        code = process.wait()
    if code:
        raise OSError(errno.EIO, "cannot be read as a whole", str(tree))
