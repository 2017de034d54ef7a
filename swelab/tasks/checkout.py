"""Makes a working copy with the bug from a repository archive and a task row.

The clean tree is a task's repository without the bug; it never enters a sandbox. A checkout is a copy of the
clean tree with the bug's patch applied, as a single commit. So no history shows the clean code.
"""

import errno
import os
import shutil
import subprocess
import tarfile
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from swelab.records import InputError, digest, sha256_file, shorten
from swelab.records.patch_names import PatchRefused
from swelab.records.task_records import Task
from swelab.sandbox.scratch import ScratchFolder, copy_tree, is_full, scratch_base
from swelab.tasks.patch_application import apply_patch, decode_patch, encode_patch, git

SECONDS = 946_684_800
"""Modification time of every file of a checkout: the date of the checkout's commit."""

_PLAIN = "a patch of files in the repository"


def _done(tree: Path, *arguments: str) -> None:
    """Like `git`, but raises OSError if git fails."""
    _check(git(tree, *arguments), tree)


def _check(done: subprocess.CompletedProcess[bytes], tree: Path) -> None:
    """Raises OSError if git failed. The error number is ENOSPC if the disk is full."""
    if done.returncode:
        fault = shorten(done.stderr.decode(errors="replace"))
        full = os.strerror(errno.ENOSPC) in fault or is_full(tree)
        raise OSError(errno.ENOSPC if full else errno.EIO, f"git in {tree} failed: {fault}", str(tree))


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yields a private folder, which is removed after the block.
    A later run removes folders that killed processes left."""
    folder = ScratchFolder(scratch_base())
    try:
        yield folder.path
    finally:
        folder.remove()


class RepoStore:
    """Unpacks repository archives (`<repos_dir>/<recipe>.tar`) and makes checkouts. Thread-safe.
    Archives with the same content are unpacked once. cache_dir: a folder that only the store may use."""

    def __init__(self, repos_dir: str | Path, cache_dir: str | Path):
        self.repos_dir, self.cache_dir = Path(repos_dir), Path(cache_dir)
        self.cache_dir.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._trees: dict[str, tuple[str, Path]] = {}
        self._empty: Path | None = None

    def digest(self, task: Task) -> str:
        """Returns a SHA-256 of the files from which the task's checkout is made.
        These are the files in the task's row, or else its archive (or the named part of the archive)."""
        if task.files:
            return digest([dict(file) for file in task.files])
        archive = self._unpack_repository(task)[0]
        return digest([archive, task.part]) if task.part else archive

    def clean_tree(self, task: Task) -> Path:
        """Returns a folder with the clean code: the repository, or the part that the task names.

        If the task's row contains the files, the folder has these files, with the bug. Raises InputError if
        the archive is missing or broken, or does not have the part.
        """
        if task.files:
            return self._row_folder(task)
        tree = self._unpack_repository(task)[1]
        if not task.part:
            return tree
        part = tree / task.part
        if part.resolve().parent != tree.resolve() or not part.is_dir():
            where = self.repos_dir / f"{task.repo_recipe}.tar"
            raise InputError(f"no folder {task.part!r}", where, "the part that the task names")
        return part

    def checkout(self, task: Task, destination: Path, *, for_agent: bool = False) -> None:
        """Makes `destination`: the clean tree with the bug applied, as one commit.

        All files have the same modification time. The same task gives the same commit hash. for_agent: omit
        the files of hidden tests. Raises InputError if the bug's patch does not apply.
        """
        if task.files:
            destination.mkdir(parents=True)
            write_files(task, destination)
        else:
            clean = self.clean_tree(task)
            destination.mkdir(parents=True)
            copy_tree(clean, destination, None)
            _apply_bug(task, destination)
        for path in task.failing_files if for_agent and task.hidden_tests else ():
            (destination / path).unlink(missing_ok=True)
        (destination / ".git").mkdir()
        copy_tree(self._empty_repository(), destination / ".git", None)
        for arguments in (["add", "-A", "-f"], ["commit", "-q", "-m", "base"]):
            _done(destination, *arguments)
        _set_one_age(destination)

    @contextmanager
    def scratch_checkout(self, task: Task, *, for_agent: bool = False) -> Iterator[Path]:
        """Yields a temporary folder with the tree that `checkout` makes. Raises InputError."""
        with tempfile.TemporaryDirectory(dir=self.cache_dir) as scratch:
            tree = Path(scratch) / "tree"
            self.checkout(task, tree, for_agent=for_agent)
            yield tree

    def _empty_repository(self) -> Path:
        """Returns the .git folder of a repository without commits, which is made once."""
        with self._lock:
            if self._empty is None:
                place = Path(tempfile.mkdtemp(prefix=".empty.", dir=self.cache_dir))
                _done(place, "init", "-q", "-b", "main", "--template=")
                self._empty = place / ".git"
            return self._empty

    def _row_folder(self, task: Task) -> Path:
        """Returns the folder with the files of a task's row, which are written once."""
        tree = self.cache_dir / f"files.{self.digest(task)[:32]}"
        with self._lock:
            if not tree.is_dir():
                scratch = Path(tempfile.mkdtemp(prefix=".files.", dir=self.cache_dir))
                write_files(task, scratch)
                os.chmod(scratch, 0o755)
                os.replace(scratch, tree)
        return tree

    def _unpack_repository(self, task: Task) -> tuple[str, Path]:
        name = task.repo_recipe
        if not name:
            raise InputError(
                "this task has no repo_recipe, and its image needs a container engine",
                f"{task.instance_id} ({task.image_name})",
                "a task whose repository is a file under results/repos",
            )
        with self._lock:
            if name not in self._trees:
                self._trees[name] = self._unpack(name)
            return self._trees[name]

    def _unpack(self, name: str) -> tuple[str, Path]:
        archive = self.repos_dir / f"{name}.tar"
        if not archive.is_file():
            raise InputError("no such repository archive", archive)
        sha256 = sha256_file(archive)
        tree = self.cache_dir / f"{name}.{sha256[:16]}"
        if not tree.is_dir():
            scratch = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=self.cache_dir))
            try:
                with tarfile.open(archive) as tar:
                    unpack(tar, scratch)
                os.chmod(scratch, 0o755)
                os.replace(scratch, tree)
            except tarfile.TarError as error:
                raise InputError(f"not a usable archive: {error}", archive) from None
            finally:
                shutil.rmtree(scratch, ignore_errors=True)
        return sha256, tree


def _apply_bug(task: Task, tree: Path) -> None:
    """Applies a task's bug to `tree`.
    Raises InputError if the bug's patch does not apply, and OSError if the disk is full."""
    try:
        applied = apply_patch(tree, task.patch)
    except PatchRefused as refusal:
        raise InputError(f"the bug's patch is refused: {refusal}", task.instance_id, _PLAIN) from None
    if applied.returncode:
        fault = shorten(applied.stderr.decode(errors="replace"))
        if os.strerror(errno.ENOSPC) in fault or is_full(tree):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tree))
        raise InputError(f"the bug's patch does not apply: {fault}", task.instance_id, "a git patch")


def write_files(task: Task, tree: Path) -> None:
    """Writes the files of a task's row into the folder `tree`.
    Raises InputError if a path leaves the folder."""
    for file in task.files:
        if not is_inside(file.path):
            raise InputError(f"the path {file.path!r} leaves the checkout", task.instance_id, "a path in it")
        place = tree / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(encode_patch(file.content))
        place.chmod(0o644)


def is_inside(path: str) -> bool:
    """Returns whether a path can name a file of a checkout: relative, normalized, and not in .git."""
    parts = PurePosixPath(path).parts
    bad = path.startswith("/") or "\\" in path or "\0" in path or not parts
    return not bad and ".." not in parts and ".git" not in parts and "/".join(parts) == path


def _set_one_age(tree: Path) -> None:
    """Gives all files below `tree` the same modification time.
    Otherwise the newest file would show the bug."""
    times = (SECONDS, SECONDS)
    for folder, _, names in os.walk(tree, topdown=False):
        for name in names:
            os.utime(os.path.join(folder, name), times, follow_symlinks=False)
        os.utime(folder, times)


def unpack(tar: tarfile.TarFile, folder: Path) -> None:
    """Writes the regular files of `tar` into `folder`. Raises tarfile.TarError if `tar` has a link or device.
    The standard library could check this, but not in Debian's Python 3.11.2."""
    for member in tar:
        parts = PurePosixPath(member.name).parts
        if member.name.startswith("/") or ".." in parts or not (member.isfile() or member.isdir()):
            raise tarfile.TarError(f"unsafe entry {member.name!r}")
        stream = tar.extractfile(member)
        if stream is None:
            continue
        target = folder.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(stream.read())
        target.chmod(0o755 if member.mode & 0o100 else 0o644)


def gold_patch(store: RepoStore, task: Task) -> str:
    """Returns the gold fix of a task: a unified diff from the checkout with the bug to the clean tree."""
    with store.scratch_checkout(task) as tree:
        try:
            _check(apply_patch(tree, task.patch, reverse=True), tree)
        except PatchRefused as refusal:
            raise InputError(f"the bug's patch is refused: {refusal}", task.instance_id, _PLAIN) from None
        diff = git(tree, "diff", "--binary", "--no-renames", "HEAD")
        _check(diff, tree)
        return decode_patch(diff.stdout)
