"""What a sandbox's processes and files use right now, read from outside through /proc and the file system."""

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from swelab.sandbox.protocol import Limits

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICKS = os.sysconf("SC_CLK_TCK")
_SHORTEST, _LONGEST = 0.05, 0.5
_WALK_REST, _WALK_EVERY = 1.0, 15.0
INODE_BYTES = 16 << 10
"""What a file's inode is counted as: file systems in memory run out of inodes long before bytes. A sandbox of
4 GiB may have 262,144 files."""


@dataclass(frozen=True)
class ResourceUsage:
    """Sums over a process tree."""

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
    """Process ids of `root` and all under it. Orphans count: in a pid namespace its init adopts them."""
    found = [root]
    for pid in found:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
            for thread in threads:
                found.extend(map(int, _read(f"/proc/{pid}/task/{thread}/children").split()))
        except OSError:
            continue  # ended meanwhile
    return found


def usage(root: int) -> ResourceUsage:
    """Resident memory (pages shared by several processes count in each) and CPU time with waited children."""
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
    """Resident bytes with shared pages counted once (Pss); None where the kernel does not tell us."""
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


def disk_bytes(folder: Path) -> int:
    """Bytes on disk of all files under `folder` and of their inodes; symlinks are not followed."""
    total = 0
    pending = [str(folder)]
    while pending:
        try:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    total += entry.stat(follow_symlinks=False).st_blocks * 512 + INODE_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
        except OSError:
            continue  # removed meanwhile, or closed to us
    return total


def unlinked_bytes(root: int) -> int:
    """Bytes on disk of files that processes hold open after removing them."""
    sizes: dict[tuple[int, int], int] = {}
    for pid in process_tree(root):
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                seen = os.stat(f"/proc/{pid}/fd/{name}")
                if seen.st_nlink == 0 and stat.S_ISREG(seen.st_mode):
                    sizes[seen.st_dev, seen.st_ino] = seen.st_blocks * 512
        except OSError:
            continue
    return sum(sizes.values())


class DiskMeter:
    """Says whether a folder has outgrown a limit, walked only when what the disk has left makes that likely.

    Lives as long as its folder, so that many short commands cannot fill it between two checks.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._used = 0
        self._free = self._free_now()
        self._walked = time.monotonic()
        self._rest = 0.0

    def _free_now(self) -> int:
        state = os.statvfs(self._folder)
        return state.f_bfree * state.f_frsize + state.f_ffree * INODE_BYTES

    def exceeds(self, limit: int, root: int) -> bool:
        """`root`: the process tree whose unlinked open files count too."""
        now = time.monotonic()
        grown = max(0, self._free - self._free_now())
        if now - self._walked < self._rest or (
            self._used + grown <= limit and now - self._walked < _WALK_EVERY
        ):
            return False
        self._used = disk_bytes(self._folder)
        self._free = self._free_now()
        self._walked = time.monotonic()
        self._rest = max(_WALK_REST, 20 * (self._walked - now))
        return self._used > limit or self._used + unlinked_bytes(root) > limit


class Watch:
    """Checks one command against its limits; `due` is when (time.monotonic) to check again."""

    def __init__(self, root: int, disk: DiskMeter, limits: Limits) -> None:
        self._root = root
        self._meter = disk
        self._limits = limits
        self.due = time.monotonic() + _SHORTEST

    def check(self) -> str:
        """Name of the limit that is exceeded now, "" for none."""
        started = time.monotonic()
        limit = self._processes() or self._disk()
        # A big tree is looked at less often: watching takes at most a twentieth of one core.
        ended = time.monotonic()
        self.due = ended + min(_LONGEST, max(_SHORTEST, 20 * (ended - started)))
        return limit

    def _processes(self) -> str:
        used = usage(self._root)
        if used.cpu_seconds >= self._limits.cpu_seconds:
            return "cpu"
        if used.memory_bytes > self._limits.memory_bytes:
            exact = proportional_memory(self._root)
            if exact is None or exact > self._limits.memory_bytes:
                return "memory"
        return ""

    def _disk(self) -> str:
        return "disk" if self._meter.exceeds(self._limits.disk_bytes, self._root) else ""
