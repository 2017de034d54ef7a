"""Images that were pulled, as their record tells them, and paths inside an unpacked one."""

import os
import stat
from pathlib import Path, PurePosixPath

from swelab.records import check, read_json
from swelab.sandbox.protocol import WORKDIR, Image

_MOST_LINKS = 40


def load_images(path: str | Path) -> dict[str, Image]:
    """Image by name, from a record of pulled images (schema `images`); those that failed are not in it.

    Folders are found relative to the record. Raises InputError.
    """
    record = read_json(path)
    check(record, "images", path)
    base = Path(path).absolute().parent
    return {
        name: Image(
            name,
            found["digest"],
            base / found["folder"] if found["folder"] else None,
            found.get("workdir", WORKDIR),
            found.get("install", ""),
        )
        for name, found in record["images"].items()
    }


def inside(root: Path, path: str) -> Path | None:
    """The place in an unpacked image that `path` means there, symlinks followed without leaving `root`.

    Neither absolute links nor ".." lead out. None when there is nothing, or links go in circles.
    """
    left = list(PurePosixPath("/", path).parts[1:])[::-1]
    done: list[str] = []
    links = 0
    while left:
        part = left.pop()
        if part == "..":
            done = done[:-1]
            continue
        place = root.joinpath(*done, part)
        try:
            kind = place.lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISLNK(kind):
            done.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        target = PurePosixPath(os.readlink(place))
        done = [] if target.is_absolute() else done
        left += [part for part in target.parts if part != "/"][::-1]
    return root.joinpath(*done)
