"""A file system in memory for each sandbox. The kernel limits its bytes and inodes.

The file system is mounted in a separate mount namespace, in which sandboxes start. The namespace ends when
this process ends. This process reaches the files through an open descriptor. Only root may mount. If we are
another user, sandboxes share a file system.
"""

import ctypes
import errno
import os
import queue
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from swelab.sandbox.protocol import Limits
from swelab.sandbox.resource_limits import INODE_BYTES, disk_bytes
from swelab.sandbox.scratch import ScratchFolder, is_full

_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000
_MS_NOSUID, _MS_NODEV, _MS_REC, _MS_SLAVE, _MS_SHARED = 2, 4, 1 << 14, 1 << 19, 1 << 20
_MNT_DETACH = 2
_SPARE_BYTES, _SPARE_INODES = 64 << 20, 4096
_LEAST_MEMORY = 128 << 20
_ROOT = "files"
Result = TypeVar("Result")
_one_at_a_time = threading.Lock()
_libc = ctypes.CDLL(None, use_errno=True)


class Mounter:
    """A thread in a separate mount namespace. The namespace ends when this process ends. Raises OSError.

    The thread sees the machine's mounts. Mounts that the thread makes are visible only to the thread and to
    the processes that it starts.
    """

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        entered: Future[None] = Future()
        threading.Thread(target=self._work, args=(entered,), daemon=True, name="mounter").start()
        entered.result()

    def _work(self, entered: "Future[None]") -> None:
        try:
            _call(_libc.unshare, _CLONE_FS | _CLONE_NEWNS)
            for kind in (_MS_SLAVE, _MS_SHARED):
                _call(_libc.mount, None, b"/", None, ctypes.c_ulong(_MS_REC | kind), None)
        except OSError as error:
            entered.set_exception(error)
            return
        entered.set_result(None)
        while True:
            job, answer = self._jobs.get()
            try:
                answer.set_result(job())
            except BaseException as error:
                answer.set_exception(error)

    def do(self, job: Callable[[], Result]) -> Result:
        """Runs a function in the thread and returns its result. Raises the function's exception, and OSError
        if Python is shutting down, because the thread no longer runs then."""
        if sys.is_finalizing():
            raise OSError(errno.ESHUTDOWN, "the thread of the mounts has ended")
        answer: Future[Result] = Future()
        self._jobs.put((job, answer))
        return answer.result()


def mounter() -> Mounter | None:
    """Returns the mounter of this process, or None if the process may not create one."""
    with _one_at_a_time:  # two mounters would not see each other's mounts
        return _mounter_of(os.getpid())


@cache
def _mounter_of(_: int) -> Mounter | None:
    try:
        return Mounter()
    except OSError:
        return None


class PrivateFiles:
    """The private folder of a sandbox.

    path: path by which this process reaches the folder. inside: path by which processes that the mounter
    starts reach it. With a mounter, the folder is a separate file system, larger than the disk limit.
    """

    def __init__(self, base: Path, limits: Limits, mounter: Mounter | None):
        """Creates the folder. Raises OSError."""
        self._base, self._mounter, self._descriptor = base, mounter, -1
        self._scratch = ScratchFolder(base)
        self.path = self.inside = self._scratch.path
        if mounter:
            try:
                self._mount(mounter, limits)
            except BaseException:
                self.remove()
                raise

    def _mount(self, mounter: Mounter, limits: Limits) -> None:
        size = limits.disk_bytes + limits.disk_bytes // 4 + _SPARE_BYTES
        options = f"size={size},nr_inodes={size // INODE_BYTES + _SPARE_INODES},mode=755".encode()
        place = self._scratch.path

        def mount() -> int:
            flags = ctypes.c_ulong(_MS_NOSUID | _MS_NODEV)
            _call(_libc.mount, b"tmpfs", os.fsencode(place), b"tmpfs", flags, options)
            os.mkdir(place / _ROOT)
            os.chmod(place / _ROOT, 0o755)
            return os.open(place, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)

        self._descriptor = mounter.do(mount)
        self.inside = place / _ROOT
        self.path = Path(f"/proc/{os.getpid()}/fd/{self._descriptor}") / _ROOT

    def crowding(self, limits: Limits) -> str:
        """Returns "room" if other programs leave too little memory or disk for a command, else ""."""
        if self._mounter and _free_memory() < _LEAST_MEMORY:
            return "room"
        return "room" if is_full(self.path) and 2 * disk_bytes(self.path) < limits.disk_bytes else ""

    def remove(self) -> None:
        """Deletes the folder with all its files."""
        if self._mounter and self._descriptor >= 0:
            if sys.is_finalizing():
                return  # the mount ends with this process, and the next process deletes the folder
            place = os.fsencode(self._scratch.path)
            self._mounter.do(lambda: int(_libc.umount2(place, _MNT_DETACH)))
            os.close(self._descriptor)
            self._descriptor = -1
        self._scratch.remove()


def _free_memory() -> int:
    """Returns the number of bytes of memory that the machine has available."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) << 10
    return 1 << 60


def _call(function: Callable[..., int], *arguments: object) -> None:
    if function(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
