"""Converts a source archive to a repository archive: a deterministic tar of a clean checkout."""

import fnmatch
import io
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from swelab.configs.kinds.repo import GitRepo, PypiRepo
from swelab.files.package_index import fetch_archive
from swelab.records import InputError
from swelab.sandbox import toolbox_path
from swelab.tasks.forge.own_repository import Files, install, read_commit

LICENCE_MARKS = {
    "MIT": "permission is hereby granted, free of charge, to any person obtaining a copy",
    "BSD-2-Clause": "redistribution and use in source and binary forms",
    "BSD-3-Clause": "redistribution and use in source and binary forms",
    "Apache-2.0": "apache license",
}
"""Maps the SPDX name of a licence to a phrase of its text. These licences allow changed copies."""
MAX_UNPACKED = 256 << 20


def build_repo(recipe: PypiRepo | GitRepo, cache_dir: Path) -> bytes:
    """Returns a tar of the clean checkout of a `pypi` or `git` repository recipe.

    The same recipe gives the same bytes, if its install command installs the same packages. Raises InputError
    if the archive or commit cannot be fetched or read, or if the install command fails. Also raises
    InputError if the licence file does not contain the licence that the recipe names.
    """
    if recipe.source == "git":
        return write_tar(_own(recipe))
    files = read_members(fetch_archive(recipe, Path(cache_dir)), recipe.file)
    text = files.get(recipe.licence_file, (b"", False))[0].decode("utf-8", "replace")
    if LICENCE_MARKS[recipe.licence] not in " ".join(text.lower().split()):
        where = f"{recipe.file}: {recipe.licence_file}"
        raise InputError("licence text not found", where, f"the text of {recipe.licence}")
    kept = {path: file for path, file in files.items() if not _left_out(path, recipe.exclude)}
    return write_tar(_only(recipe.only, kept, recipe.file) if recipe.only else kept)


def _only(patterns: list[str], files: Files, archive: str) -> Files:
    """Returns the files that a pattern matches. Raises InputError for a pattern that matches no file."""
    result: Files = {}
    for pattern in patterns:
        matched = {path: file for path, file in files.items() if fnmatch.fnmatchcase(path, pattern)}
        if not matched:
            where = f"{archive}: {pattern}"
            raise InputError("only: no file of the archive has this name", where, f"such as {_some(files)}")
        result |= matched
    return result


def _own(recipe: GitRepo) -> Files:
    files = read_commit(recipe)
    for kind, patterns in (("targets", recipe.targets), ("tests", recipe.tests)):
        if not any(fnmatch.fnmatchcase(path, each) for path in files for each in patterns):
            where = f"{recipe.repository} at {recipe.commit}"
            raise InputError(f"{kind}: no file matches {patterns}", where, f"such as {_some(files)}")
    files |= install(recipe, files, toolbox_path())
    size = sum(len(content) for content, _ in files.values())
    if size > MAX_UNPACKED:
        what = f"checkout and installed packages are {size >> 20} MiB"
        raise InputError(
            what, recipe.repository, f"at most {MAX_UNPACKED >> 20} MiB, copied for each sandbox"
        )
    return files


def _some(files: Files) -> str:
    """Returns some Python files of a repository, for a message."""
    return ", ".join([path for path in sorted(files) if path.endswith(".py")][:5]) or "one with Python files"


def read_members(data: bytes, name: str) -> Files:
    """Maps paths in a source archive, without the top folder, to (bytes, executable).

    Raises InputError for a broken archive, a link or device, a path that leaves the folder, or more than
    `MAX_UNPACKED` bytes.
    """
    return _read(data, name, _inner_path, "r", "a .tar.gz source archive")


def read_plain(data: bytes, name: str | Path) -> Files:
    """Maps paths in a repository archive to (bytes, executable). Raises InputError like `read_members`."""
    return _read(data, name, _plain_path, "r:", "a tar of plain files")


def _read(
    data: bytes,
    name: str | Path,
    path_of: Callable[[tarfile.TarInfo, str | Path], str],
    mode: Literal["r", "r:"],
    expected: str,
) -> Files:
    files: Files = {}
    total = 0
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode=mode) as tar:
            for member in tar:
                if member.isdir():
                    continue
                path = path_of(member, name)
                total += member.size
                if total > MAX_UNPACKED:
                    raise InputError(f"unpacks to more than {MAX_UNPACKED >> 20} MiB", name)
                stream = tar.extractfile(member)
                files[path] = (stream.read() if stream else b"", bool(member.mode & 0o100))
    except (tarfile.TarError, EOFError, OSError) as error:
        raise InputError(f"not a usable archive: {error}", name, expected) from None
    return files


def write_tar(files: Files) -> bytes:
    """Returns a tar whose bytes depend only on `files`: sorted, without owners and times."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(files):
            content, executable = files[path]
            member = tarfile.TarInfo(path)
            member.size = len(content)
            member.mode = 0o755 if executable else 0o644
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def _inner_path(member: tarfile.TarInfo, name: str | Path) -> str:
    parts = _parts(member, name, 2, "plain files in one top folder")
    return "/".join(parts[1:])


def _plain_path(member: tarfile.TarInfo, name: str | Path) -> str:
    return "/".join(_parts(member, name, 1, "plain files below the folder"))


def _parts(member: tarfile.TarInfo, name: str | Path, least: int, expected: str) -> list[str]:
    parts = member.name.removeprefix("./").split("/")
    if not member.isfile() or len(parts) < least or any(part in ("", ".", "..", ".git") for part in parts):
        raise InputError(f"unsafe entry {member.name!r}", name, expected)
    return parts


def _left_out(path: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(part, pattern) for part in path.split("/") for pattern in patterns)
