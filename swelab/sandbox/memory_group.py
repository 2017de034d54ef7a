"""Limits the memory of all processes of a sandbox together by a control group, if we may make one.

`resource_limits` only samples the memory in use. For a group, the kernel checks each allocation. The limit of
a group is higher than the sampled limit, because files in memory and socket buffers count, too. The kernel
also charges page cache and directory entries to the group whose processes read them first. So they can be
dropped when the sandbox closes.
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
    """The file names of one version of control groups.

    bound: the memory limit. kills: the number of killed processes. drop: drops the page cache. once: settings
    that are made once.
    """

    bound: str
    kills: str
    drop: str
    once: tuple[tuple[str, str], ...] = ()


_VERSIONS = {
    "cgroup": _Files("memory.limit_in_bytes", "memory.oom_control", "memory.force_empty"),
    "cgroup2": _Files("memory.max", "memory.events", "memory.reclaim", (("memory.oom.group", "1"),)),
}


class MemoryGroup:
    """One group, usable by concurrent commands. It contains no process between commands."""

    def __init__(self, folder: Path, files: _Files):
        self.folder = folder
        self._files = files
        self._bound = 0

    @classmethod
    def make(cls) -> "MemoryGroup | None":
        """Makes a group below the group of this process.

        Returns None if this process lacks the permission.
        """
        for version, parent in _parents():
            group = cls(parent / f"{PREFIX}{secrets.token_hex(8)}", _VERSIONS[version])
            with suppress(OSError):
                group.folder.mkdir()
                if (group.folder / group._files.bound).exists():
                    return group
                group.remove()
        return None

    def take(self, pids: Iterable[int], limits: Limits) -> int:
        """Moves processes into the group, and raises the group's memory limit if a command has a higher one.

        Returns the number of kills so far. Errors are ignored: then only `resource_limits` limits the memory.
        """
        bound = limits.memory_bytes + limits.disk_bytes + limits.shm_bytes
        with suppress(OSError):
            if not self.folder.exists():  # `prune_groups` removes a group that has no process
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
        """Returns the number of processes in the group that the kernel's OOM killer has killed."""
        with suppress(OSError):
            for line in (self.folder / self._files.kills).read_text().splitlines():
                name, _, count = line.partition(" ")
                if name == "oom_kill":
                    return int(count)
        return 0

    def drop(self) -> None:
        """Drops the page cache that the group's processes filled. The processes must have ended."""
        _drop(self.folder, self._files)

    def remove(self, drops: bool = False) -> None:
        """Removes the group. The group's processes must have ended.

        drops: whether to drop the page cache first.
        """
        if drops:
            self.drop()
        with suppress(OSError):
            self.folder.rmdir()


def prune_groups() -> None:
    """Removes groups that have no process, and drops their page cache. Killed callers may have left them."""
    for version, parent in _parents():
        for folder in parent.glob(f"{PREFIX}*"):
            with suppress(OSError):  # it has processes
                if not (folder / "cgroup.procs").read_bytes():
                    _drop(folder, _VERSIONS[version])
                folder.rmdir()


def drop_loaded(pid: int, name: str) -> None:
    """Drops the page cache that the group of process `pid` filled.
    Does nothing if the path of the group does not contain `name`."""
    with suppress(OSError):
        groups = dict(_groups(pid))
        for version, mount in _mounts():
            if name in (path := groups.get(version, "")):
                _drop(mount / path.lstrip("/"), _VERSIONS[version])


def _drop(folder: Path, files: _Files) -> None:
    with suppress(OSError):  # version 2 raises an error if some pages stay in memory
        amount = "0" if files is _VERSIONS["cgroup"] else (folder / "memory.current").read_text()
        (folder / files.drop).write_text(amount)


def _parents() -> Iterator[tuple[str, Path]]:
    """Yields (version, folder) of the memory control groups in which this process may make a child group."""
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
        # In version 2, a group that has processes cannot limit its children. We then use its parent.
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
