"""A control group that bounds the memory of all processes of a sandbox together, where root may make one.

It is hard: sampling sees what processes have taken, the kernel what they ask for. Its limit stands above the
sampled one, for files in memory and in buffers of sockets count here, too. The kernel also charges to it
the pages of files and the names of files that its processes were the first to read, so that these can be
dropped with the sandbox.
"""

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from swelab.sandbox.protocol import Limits

PREFIX = "swelab-sandbox-"


@dataclass(frozen=True)
class _Files:
    """Names of a version's files: the bound, the count of kills, and what is set once."""

    bound: str
    kills: str
    drop: str
    once: tuple[tuple[str, str], ...] = ()


_VERSIONS = {
    "cgroup": _Files("memory.limit_in_bytes", "memory.oom_control", "memory.force_empty"),
    "cgroup2": _Files("memory.max", "memory.events", "memory.reclaim", (("memory.oom.group", "1"),)),
}


class MemoryGroup:
    """One group, which holds no process between commands; good for several commands at once."""

    def __init__(self, folder: Path, files: _Files):
        self.folder = folder
        self._files = files
        self._bound = 0

    @classmethod
    def make(cls) -> "MemoryGroup | None":
        """A new group below our own; None where we may not make one."""
        for version, parent in _parents():
            group = cls(parent / f"{PREFIX}{secrets.token_hex(8)}", _VERSIONS[version])
            with suppress(OSError):
                group.folder.mkdir()
                if (group.folder / group._files.bound).exists():
                    return group
                group.remove()
        return None

    def take(self, pids: Iterable[int], limits: Limits) -> int:
        """Move processes in, with a bound that fits a command's limits; how many were killed up to now.

        Where it cannot be done, sampling alone bounds the command.
        """
        bound = limits.memory_bytes + limits.disk_bytes + limits.shm_bytes
        with suppress(OSError):
            if not self.folder.exists():  # between two commands a group looks like one that was left
                self.folder.mkdir()
                self._bound = 0
            if bound > self._bound:
                for name, value in ((self._files.bound, str(bound)), *self._files.once):
                    (self.folder / name).write_text(value)
                self._bound = bound
            for pid in pids:
                (self.folder / "cgroup.procs").write_text(str(pid))
        return self.kills()

    def kills(self) -> int:
        """Number of processes in the group that the kernel's OOM killer has killed."""
        with suppress(OSError):
            for line in (self.folder / self._files.kills).read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
        return 0

    def drop(self) -> None:
        """Take from memory what of files its processes have brought there; they must have ended."""
        _drop(self.folder, self._files)

    def remove(self, drops: bool = False) -> None:
        """Give the group back, and `drop`; its processes must have ended."""
        if drops:
            self.drop()
        with suppress(OSError):
            self.folder.rmdir()


def prune_groups() -> None:
    """Remove groups without processes, which killed callers may have left, with what they have in memory."""
    for version, parent in _parents():
        for folder in parent.glob(f"{PREFIX}*"):
            with suppress(OSError):  # it has processes
                if not (folder / "cgroup.procs").read_bytes():
                    _drop(folder, _VERSIONS[version])
                folder.rmdir()


def drop_loaded(pid: int, name: str) -> None:
    """As `MemoryGroup.drop`, for the group of a process, if `name` is a part of the group's path."""
    with suppress(OSError):
        groups = dict(_groups(pid))
        for version, mount in _mounts():
            if name in (path := groups.get(version, "")):
                _drop(mount / path.lstrip("/"), _VERSIONS[version])


def _drop(folder: Path, files: _Files) -> None:
    with suppress(OSError):  # version 2 says so where it has dropped less than all
        amount = "0" if files is _VERSIONS["cgroup"] else (folder / "memory.current").read_text()
        (folder / files.drop).write_text(amount)


def _parents() -> Iterator[tuple[str, Path]]:
    """(version, folder) of the groups that bound memory here and may get a child of ours."""
    if os.geteuid() != 0:
        return
    own = dict(_groups(os.getpid()))
    for version, mount in _mounts():
        path = own.get(version)
        if path is None:
            continue
        folder = mount / path.lstrip("/")
        if version == "cgroup":
            yield version, folder
            continue
        # Of version 2 a group with processes has no children with bounds; its parent may have.
        for place in (folder, folder.parent):
            with suppress(OSError):
                if "memory" in (place / "cgroup.subtree_control").read_text().split():
                    yield version, place
                    break


def _groups(pid: int) -> Iterator[tuple[str, str]]:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, names, path = line.split(":", 2)
        if "memory" in names.split(","):
            yield "cgroup", path
        elif number == "0":
            yield "cgroup2", path


def _mounts() -> Iterator[tuple[str, Path]]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        words = line.split()
        at = words.index("-")
        version = words[at + 1]
        if version == "cgroup2" or (version == "cgroup" and "memory" in words[at + 3].split(",")):
            yield version, Path(words[4])
