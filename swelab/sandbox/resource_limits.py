"""Measures from outside, by /proc and the file system, the resources that a sandbox uses."""

import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from swelab.sandbox.memory_group import MemoryGroup
from swelab.sandbox.protocol import Limits

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_SHORTEST, _LONGEST = 0.05, 0.5
_WALK_REST, _WALK_EVERY = 1.0, 15.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LONGEST_PATH = 4000  # bytes, a little less than PATH_MAX of Linux
MOST_STRETCHES = 16
ENDLESS = 1 << 60
_BUFFER = 212_992  # net.core.wmem_default
_MANY_SOCKETS = 16
INODE_BYTES = 16 << 10
"""Bytes that we count for a file's inode.

File systems in memory run out of inodes long before they run out of bytes. A sandbox of 4 GiB may have
262,144 files.
"""


@dataclass(frozen=True)
class ResourceUsage:
    """The totals of a process tree."""

    processes: int
    memory_bytes: int
    cpu_seconds: float


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 16)
    finally:
        os.close(descriptor)


def process_tree(root: int) -> list[int]:
    """Returns the ids of `root` and its descendants.

    Orphans are included, since a pid namespace's init adopts them.
    """
    pids = [root]
    for pid in pids:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
            for thread in threads:
                pids.extend(map(int, _read(f"/proc/{pid}/task/{thread}/children").split()))
        except OSError:
            continue  # ended meanwhile
    return pids


def usage(root: int) -> ResourceUsage:
    """Returns the resident memory and the CPU time of a process tree.

    A shared page counts in each process. CPU time includes children that were waited for.
    """
    processes, memory, ticks = 0, 0, 0
    for pid in process_tree(root):
        try:
            fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        except OSError:
            continue
        processes += 1
        memory += int(fields[21]) * _PAGE
        ticks += sum(map(int, fields[11:15]))
    return ResourceUsage(processes, memory, ticks / _TICKS)


def proportional_memory(root: int) -> int | None:
    """Returns the resident bytes of a process tree, with shared pages counted once (Pss).

    Returns None if the kernel does not report them.
    """
    total = 0
    for pid in process_tree(root):
        try:
            lines = _read(f"/proc/{pid}/smaps_rollup").splitlines()
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError:
            return None
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(b"Pss:"))
    return total


def socket_bytes(pid: int) -> int:
    """Estimates the bytes in the sockets of a process's network namespace. The result is an upper bound.

    These bytes do not count as memory of a process. We assume two default buffers for each socket. If there
    are many TCP sockets, we also add the lengths of their queues.
    """
    table: dict[str, list[str]] = {}
    try:
        for name in ("sockstat", "sockstat6"):
            table |= {
                line.split(":")[0]: line.split()
                for line in _read(f"/proc/{pid}/net/{name}").decode().splitlines()
            }
        total = 2 * _BUFFER * int(table["sockets"][2])
        if sum(int(table[name][2]) for name in ("TCP", "TCP6") if name in table) >= _MANY_SOCKETS:
            for name in ("tcp", "tcp6"):
                rows = Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
                total += sum(int(queue, 16) for row in rows for queue in row.split()[4].split(":"))
    except (OSError, KeyError):
        return 0  # ended meanwhile
    return total


@dataclass
class Tally:
    """A count of bytes on disk. whole: whether all files could be inspected."""

    total: int = 0
    whole: bool = True

    def add_tree(self, top: int, stretches: int = MOST_STRETCHES) -> None:
        """Adds all files below the open folder `top`, with their inodes. Symlinks are not followed.

        The kernel limits the length of a path. At a folder with a longer path from `top`, counting starts
        anew with this folder as `top`, at most `stretches` times. An even deeper tree counts as ENDLESS.
        """
        pending = ["."]
        while pending:
            path = pending.pop()
            with self._noting(), _folder(path, top) as folder, os.scandir(folder) as entries:
                for entry in entries:
                    with self._noting():
                        self.total += entry.stat(follow_symlinks=False).st_blocks * 512 + INODE_BYTES
                        if not entry.is_dir(follow_symlinks=False):
                            continue
                        below = f"{path}/{entry.name}"
                        if len(os.fsencode(below)) < _LONGEST_PATH:
                            pending.append(below)
                        elif stretches:
                            with _folder(entry.name, folder) as deep:
                                self.add_tree(deep, stretches - 1)
                        else:
                            self.total = ENDLESS

    def add_removed(self, root: int) -> None:
        """Adds removed files that processes of the tree `root` still have open or mapped."""
        sizes: dict[tuple[int, int], int] = {}
        for pid in process_tree(root):
            for listed in (_descriptors(pid), _removed_mappings(pid)):
                with self._noting():
                    for path in listed:
                        with self._noting():
                            seen = os.stat(path)
                            if seen.st_nlink == 0 and stat.S_ISREG(seen.st_mode):
                                sizes[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
        self.total += sum(sizes.values())

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except PermissionError:
            self.whole = False
        except OSError:
            pass  # the file was removed, or its process ended


@contextmanager
def _folder(path: str, parent: int) -> Iterator[int]:
    descriptor = os.open(path, _FOLDER, dir_fd=parent)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _descriptors(pid: int) -> Iterator[str]:
    """Yields the paths in /proc of the files that a process's threads have open. Raises OSError."""
    for thread in os.listdir(f"/proc/{pid}/task"):
        folder = f"/proc/{pid}/task/{thread}/fd"
        yield from (f"{folder}/{name}" for name in os.listdir(folder))


def _removed_mappings(pid: int) -> Iterator[str]:
    """Yields the paths in /proc of the removed files that a process has mapped. Raises OSError."""
    for line in Path(f"/proc/{pid}/maps").read_bytes().splitlines():
        # a mapping of /dev/zero is shared memory and not a file
        if line.endswith(b" (deleted)") and b" /dev/zero (deleted)" not in line:
            start, _, end = line.split()[0].decode().partition("-")
            yield f"/proc/{pid}/map_files/{int(start, 16):x}-{int(end, 16):x}"


def disk_bytes(folder: Path) -> int:
    """Returns the bytes on disk of all files below `folder` and of their inodes. Raises OSError."""
    tally = Tally()
    with _folder(str(folder), -1) as top:
        tally.add_tree(top)
    return tally.total


class DiskMeter:
    """Checks whether a folder exceeds a limit.

    To save time, the tree is only read if the disk lost much free space, or after some seconds. A folder has
    one meter for all its commands. Otherwise many short commands could fill the folder between checks.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._used = 0
        self._first = self._free = self._free_now()
        self._walked = time.monotonic()
        self._rest = 0.0

    def _free_now(self) -> int:
        state = os.statvfs(self._folder)
        return state.f_bfree * state.f_frsize + state.f_ffree * INODE_BYTES

    def exceeds(self, limit: int, root: int) -> bool:
        """Returns whether the folder exceeds `limit` bytes.

        root: a process. Removed files count, too, if this process or a descendant has them open. If some
        files cannot be inspected, we count all free space that the disk has lost since the meter was made.
        """
        now = time.monotonic()
        grown, rested = max(0, self._free - self._free_now()), now - self._walked
        if grown <= limit // 4 and (
            rested < self._rest or (self._used + grown <= limit and rested < _WALK_EVERY)
        ):
            return False
        tally = Tally()
        with _folder(str(self._folder), -1) as top:
            tally.add_tree(top)
        tally.add_removed(root)
        self._free = self._free_now()
        self._used = tally.total if tally.whole else max(tally.total, self._first - self._free)
        self._walked = time.monotonic()
        self._rest = max(_WALK_REST, 20 * (self._walked - now))
        return self._used > limit


class Watch:
    """Checks one command against its limits. due: time of the next check, as time.monotonic() gives it."""

    def __init__(self, root: int, disk: DiskMeter, limits: Limits, group: MemoryGroup | None = None) -> None:
        self._root = root
        self._meter = disk
        self.limits = limits
        self._group = group
        self._killed = group.take(process_tree(root), limits) if group else 0
        self.due = time.monotonic() + _SHORTEST

    def check(self) -> str:
        """Returns the name of a limit that is exceeded now, or ""."""
        started = time.monotonic()
        limit = self.ended_for() or self._processes() or self._disk()
        # A large tree is checked less often, so that the checks take at most a twentieth of one core.
        ended = time.monotonic()
        self.due = ended + min(_LONGEST, max(_SHORTEST, 20 * (ended - started)))
        return limit

    def ended_for(self) -> str:
        """Returns "memory" if the kernel has killed a process for the group's memory limit, else ""."""
        return "memory" if self._group and self._group.kills() > self._killed else ""

    def _processes(self) -> str:
        used = usage(self._root)
        if used.cpu_seconds >= self.limits.cpu_seconds:
            return "cpu"
        waiting = socket_bytes(self._root)
        if used.memory_bytes + waiting > self.limits.memory_bytes:
            exact = proportional_memory(self._root)
            if exact is None or exact + waiting > self.limits.memory_bytes:
                return "memory"
        return ""

    def _disk(self) -> str:
        return "disk" if self._meter.exceeds(self.limits.disk_bytes, self._root) else ""
