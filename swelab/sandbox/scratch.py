"""Private folders and user ids of sandboxes. The kernel releases both when the owner process dies.

A process reserves a folder by a flock. It reserves a user id by an abstract unix socket with the id in its
name. This needs no daemon, and the process may also be killed. Other processes can find out whether a folder
or an id is in use.
"""

import errno
import fcntl
import os
import socket
import stat
import subprocess
import tempfile
from pathlib import Path

from swelab.sandbox.protocol import BackendMissing, SandboxLost

PREFIX = "swelab-sandbox-"
UID_SLOTS = 4096
MEMORY = "/dev/shm"
MEMORY_BYTES = 4 << 30
FULL_BYTES = 16 << 10
_COPY = ("cp", "-dR", "--preserve=mode,timestamps", "--reflink=auto", "--")


def scratch_base() -> Path:
    """Returns the folder for private copies.

    This is $SWELAB_SCRATCH if it is set. Otherwise it is MEMORY if there is enough space, or else the folder
    for temporary files. Copies have many small files, for which most disks need ten times as long as memory.
    """
    base = os.environ.get("SWELAB_SCRATCH") or (MEMORY if _roomy(MEMORY) else tempfile.gettempdir())
    path = Path(base).absolute()
    path.mkdir(parents=True, exist_ok=True)
    return path


def runnable_base() -> Path:
    """Like `scratch_base`, for copies from which programs run.

    Raises BackendMissing if no program may run there.
    """
    base = scratch_base()
    if os.statvfs(base).f_flag & os.ST_NOEXEC:
        raise BackendMissing(
            f"scratch folder {base} is mounted noexec: no program of a task would start there; "
            "set SWELAB_SCRATCH to a folder that programs may run from"
        )
    return base


def _roomy(folder: str) -> bool:
    """Returns whether `folder` has MEMORY_BYTES of free space, and programs there may be written and run."""
    try:
        facts = os.statvfs(folder)
    except OSError:
        return False
    free = facts.f_bavail * facts.f_frsize >= MEMORY_BYTES
    return free and not facts.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK | os.X_OK)


def is_full(folder: Path) -> bool:
    """Returns whether the file system of `folder` is too full for one more small file."""
    facts = os.statvfs(folder)
    return facts.f_bavail * facts.f_frsize < FULL_BYTES or bool(facts.f_files and not facts.f_favail)


class ScratchFolder:
    """A private folder that `prune` does not remove while this process lives."""

    def __init__(self, base: Path) -> None:
        while True:
            self.path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=base))
            try:
                self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # another process pruned the folder before we locked it
            if _lock(self._lock) is not False and self._is_ours():
                return
            os.close(self._lock)

    def _is_ours(self) -> bool:
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._lock))
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        """Deletes the folder and its content."""
        if self._lock < 0:
            return
        remove_tree(self.path)
        os.close(self._lock)
        self._lock = -1


def _lock(descriptor: int) -> bool | None:
    """Locks an open folder without waiting.

    Returns True if we now hold the lock, False if another process holds it, and None if the file system has
    no locks.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return False if error.errno in (errno.EWOULDBLOCK, errno.EACCES) else None
    return True


def prune(base: Path) -> int:
    """Removes folders whose owner process has ended. Returns their number. Ignores folders of other users."""
    removed = 0
    for path in base.glob(PREFIX + "*"):
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            if os.fstat(descriptor).st_uid == os.geteuid() and _lock(descriptor):
                remove_tree(path)
                removed += 1
        finally:
            os.close(descriptor)
    return removed


def remove_tree(path: Path) -> None:
    """Deletes a tree that hostile code may have made, of any depth and with folders without permissions."""
    command = ["rm", "-rf", "--", str(path)]
    subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    if path.exists():
        opened = ["chmod", "-R", "u+rwX", "--", str(path)]
        subprocess.run(opened, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def copy_tree(source: Path, target: Path, owner: tuple[int, int] | None) -> None:
    """Copies the content of the folder `source` into the existing folder `target`. Symlinks stay symlinks.

    Every file is given to `owner` (uid, gid). Raises OSError if there is no such folder or the disk is full.
    """
    if not stat.S_ISDIR(os.stat(source).st_mode):
        raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(source))
    _run_copy([*_COPY, f"{source}/.", f"{target}/"], target)
    if owner is not None:
        _run_copy(["chown", "-Rh", f"{owner[0]}:{owner[1]}", "--", str(target)], target)


def _run_copy(command: list[str], target: Path) -> None:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
        check=False,
    )
    if done.returncode == 0:
        return
    said = done.stderr.decode(errors="replace").strip().splitlines() or [f"{command[0]} failed"]
    for code in (errno.ENOSPC, errno.EDQUOT, errno.EACCES):
        if any(line.endswith(os.strerror(code)) for line in said):
            raise OSError(code, f"{os.strerror(code)} while copying to the sandbox", str(target))
    raise OSError(errno.EIO, f"copying to the sandbox failed: {said[0]}", str(target))


def spare_uids() -> range:
    """Returns user ids that belong to no account, container or sandbox.

    The ids are a little below the highest id of this user namespace. The range is empty if we are not root,
    or if the namespace has too few ids. A container may have 1 id, 65,536 ids or all ids.
    """
    if os.geteuid() != 0:
        return range(0)
    extents = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
    top = min(max(int(inside) + int(count) for inside, _, count in extents), 2**31 - 1)
    biggest = max(int(count) for _, _, count in extents)
    return range(top - 1024 - UID_SLOTS, top - 1024) if biggest > 2 * (1024 + UID_SLOTS) else range(0)


class UserId:
    """A host user id that no other sandbox on this machine uses. Raises SandboxLost if none is free."""

    def __init__(self, uids: range) -> None:
        for uid in uids:
            self._claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                self._claim.bind(f"\0{PREFIX}uid-{uid}")
            except OSError:
                self._claim.close()
                continue
            self.value = uid
            return
        raise SandboxLost(f"all {len(uids)} user ids for sandboxes are in use")

    def release(self) -> None:
        """Releases the id for other sandboxes."""
        self._claim.close()
