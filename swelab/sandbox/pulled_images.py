"""Reads the record and the configuration of pulled images, and finds paths inside an unpacked image."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from swelab.records import read_record
from swelab.records.image_records import Images
from swelab.sandbox.bwrap_process import VARIABLE
from swelab.sandbox.protocol import WORKDIR, Image

_MOST_LINKS = 40
_OF_BASH = ("BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID")  # read-only; export fails


def load_images(path: str | Path) -> dict[str, Image]:
    """Reads a record of pulled images. Returns a mapping from names to images. Raises InputError."""
    base = Path(path).absolute().parent
    return {
        name: Image(
            name, each.digest, base / each.folder if each.folder else None, each.workdir, each.install
        )
        for name, each in read_record(path, Images).images.items()
    }


def working_directory(configured: Mapping[str, Any] | None) -> str:
    """Returns the path of the repository in an image: the configured WorkingDir, or /testbed by default.

    configured: the image's configuration, as an OCI document or an engine describes it.
    """
    found = str((configured or {}).get("WorkingDir") or WORKDIR)
    return WORKDIR if found == "/" else found


def image_variables(configured: Mapping[str, Any] | None) -> dict[str, str]:
    """Returns the variables in an image's configuration that bash can export.

    configured: as in `working_directory`. Variables whose name is no shell identifier are left out, and so
    are bash's read-only variables.
    """
    pairs = [str(pair).partition("=") for pair in (configured or {}).get("Env") or []]
    return {
        name: value
        for name, equals, value in pairs
        if equals and VARIABLE.fullmatch(name) and name not in _OF_BASH and "\0" not in value
    }


def inside(root: Path, path: str) -> Path | None:
    """Returns the host path of `path` in an unpacked image. Symlinks are followed as in a chroot at `root`.

    Absolute links and ".." do not lead out of `root`. Returns None if nothing is there, or if links form a
    cycle.
    """
    parts = list(PurePosixPath("/", path).parts[1:])[::-1]
    resolved: list[str] = []
    links = 0
    while parts:
        part = parts.pop()
        if part == "..":
            resolved = resolved[:-1]
            continue
        place = root.joinpath(*resolved, part)
        try:
            kind = place.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISLNK(kind):
            resolved.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        target = PurePosixPath(os.readlink(place))
        resolved = [] if target.is_absolute() else resolved
        parts += [part for part in target.parts if part != "/"][::-1]
    return root.joinpath(*resolved)
