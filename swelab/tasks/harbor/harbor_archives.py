"""Rebuilds the repository archives of tasks that swelab exported, from their task folders."""

import hashlib
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from swelab.configs.kinds.repo import HarborRepo
from swelab.records import InputError, shorten, write_bytes
from swelab.records.patch_names import PatchRefused
from swelab.tasks.forge.archive import read_plain, write_tar
from swelab.tasks.forge.own_repository import Files
from swelab.tasks.harbor.harbor_folder import (
    CHECKOUT,
    RESTORED,
    HarborFolder,
    Refused,
    bytes_in,
    folders_in,
    read_folder,
)
from swelab.tasks.patch_application import apply_patch

MOST_BYTES = 300 << 20


def build_repo(recipe: HarborRepo) -> bytes:
    """Returns the archive of the repository that a `harbor` recipe names.
    Raises InputError if there is none."""
    return archive_in(Path(recipe.path).expanduser(), recipe.repository)


def archive_in(place: Path, name: str) -> bytes:
    """Rebuilds the archive `name` from the first task folder from which this is possible.
    Raises InputError if there is no such folder, or if folders use the name for different archives."""
    digests: dict[str, str] = {}
    archive, why = b"", ""
    for path in folders_in(place):
        try:
            folder = read_folder(path)
            if folder.repository != name:
                continue
            digests.setdefault(str(folder.ours.get("sha256")), path.name)
            archive = archive or clean_archive(folder)
        except Refused as fault:
            why = f"{path.name}: {fault}"
    if len(digests) > 1:
        what = f"{' and '.join(digests.values())} are of different archives {name!r}"
        raise InputError(what, place, "tasks of one export")
    if not archive:
        raise InputError(f"no archive {name!r} can be made" + f" ({why})" * bool(why), place,
                         "task folders that scripts.export_harbor wrote")  # fmt: skip
    return archive


def write_archives(place: Path, repos: Path) -> int:
    """Writes all archives of the task folders in `place`. Returns their number.
    Deletes an archive that cannot be made (again), and prints the reason."""
    names = set[str]()
    for path in folders_in(place):
        with suppress(Refused):
            names.add(read_folder(path).repository)
    for name in sorted(names - {""}):
        try:
            write_bytes(repos / f"{name}.tar", archive_in(place, name))
        except InputError as fault:
            (repos / f"{name}.tar").unlink(missing_ok=True)
            print(f"rows: {fault}", file=sys.stderr)
    return len(names - {""})


def clean_archive(folder: HarborFolder) -> bytes:
    """Rebuilds the archive of a task's repository without the bug.

    Reads the folder's checkout, replaces the files that the grader restores, and reverses the bug's patch.
    Raises Refused if the result does not have the hash in task.toml.
    """
    files = _read(folder, CHECKOUT) | _read(folder, RESTORED)
    patch = folder.row.get("patch")
    with tempfile.TemporaryDirectory(prefix="swelab-harbor-") as scratch:
        tree = Path(scratch)
        for path, (content, executable) in files.items():
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            (tree / path).write_bytes(content)
            (tree / path).chmod(0o755 if executable else 0o644)
        try:
            done = apply_patch(tree, patch if isinstance(patch, str) else "", reverse=True)
        except PatchRefused as refusal:
            raise Refused("its repository cannot be made again", f"its patch is refused: {refusal}") from None
        if done.returncode:
            fault = shorten(done.stderr.decode(errors="replace"))
            raise Refused("its repository cannot be made again", f"the bug is not in it: {fault}")
        archive = write_tar(
            {
                path.relative_to(tree).as_posix(): (path.read_bytes(), bool(path.stat().st_mode & 0o100))
                for path in tree.rglob("*")
                if path.is_file() and not path.is_symlink()
            }
        )
    digest = hashlib.sha256(archive).hexdigest()
    if digest != folder.ours.get("sha256"):
        what = f"its files have the hash {digest[:12]}, task.toml says {folder.ours.get('sha256')!s:.12}"
        raise Refused("its repository cannot be made again", what)
    return archive


def canonical(archive: Path) -> str:
    """Returns a hash of an archive's files that does not depend on how the archive was written.
    Raises InputError."""
    return hashlib.sha256(write_tar(read_plain(archive.read_bytes(), archive))).hexdigest()


def _read(folder: HarborFolder, name: str) -> Files:
    data = bytes_in(folder.path, name, MOST_BYTES)
    if data is None:
        raise Refused("its repository cannot be made again", f"no {name}")
    try:
        return read_plain(data, name)
    except InputError as error:
        raise Refused("its repository cannot be made again", str(error)) from None
