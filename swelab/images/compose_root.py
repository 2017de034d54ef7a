"""Composes an image's root folder by hard links to the files of its unpacked layers.

So a layer that several images share is on disk only once. A root needs space only for its folders and
symlinks. A root is never changed. Sandboxes mount it read-only, and copy the folders that they may write to.
"""

import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from swelab.images.errors import ImageBroken
from swelab.images.layers import Notes
from swelab.sandbox.pulled_images import inside


def compose(layers: Sequence[tuple[Path, Notes]], root: Path, label: str) -> None:
    """Fills the existing empty folder `root` with the layers, starting with the lowest layer.

    Raises ImageBroken, OSError (disk full).
    """
    for folder, notes in layers:
        _Laying(root, folder, notes, label).run()


class _Laying:
    """Applies one layer to the lower layers in `root`."""

    def __init__(self, root: Path, folder: Path, notes: Notes, label: str):
        self.root, self.folder, self.notes, self.label = root, folder, notes, label
        self.implied = set(notes.implied)

    def run(self) -> None:
        for name in self.notes.opaque:
            place = self._find(name)
            if place is not None and _is_folder(place):
                for child in list(place.iterdir()):
                    _remove(child)
        for name in self.notes.whiteouts:
            parent = self._find(str(PurePosixPath(name).parent))
            if parent is not None:
                _remove(parent / PurePosixPath(name).name)
        self._merge(self.folder, self.root, PurePosixPath("."))
        for name, target in self.notes.links:
            self._link(name, target)

    def _find(self, name: str) -> Path | None:
        """Resolves a path of the image, following links inside the root.

        Returns None if the path does not exist.
        """
        return inside(self.root, name)

    def _merge(self, source: Path, target: Path, name: PurePosixPath) -> None:
        with os.scandir(source) as entries:
            for entry in entries:
                place = target / entry.name
                if entry.is_dir(follow_symlinks=False):
                    below = self._folder(entry, place, name / entry.name)
                    self._merge(Path(entry.path), below, name / entry.name)
                else:
                    _put(entry.path, place)
        if str(name) not in self.implied:
            _like(source, target)

    def _folder(self, entry: os.DirEntry[str], place: Path, name: PurePosixPath) -> Path:
        """Returns the root's folder for a folder of the layer, and makes it if it is missing."""
        if _is_folder(place):
            return place
        if str(name) in self.implied and place.is_symlink():
            found = self._find(str(place.relative_to(self.root)))
            if found is None or not _is_folder(found):
                raise ImageBroken(f"{self.label}: the layer goes through /{name}, a link to no folder")
            return found
        _remove(place)
        place.mkdir(0o755)
        _like(Path(entry.path), place)
        return place

    def _link(self, name: str, target: str) -> None:
        source, parent = self._find(target), self._find(str(PurePosixPath(name).parent))
        if source is None or parent is None or _is_folder(source):
            raise ImageBroken(f"{self.label}: /{name} is a hard link to /{target}, which is no file")
        _put(str(source), parent / PurePosixPath(name).name)


def _is_folder(place: Path) -> bool:
    try:
        return stat.S_ISDIR(place.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _remove(place: Path) -> None:
    if _is_folder(place):
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _put(source: str, place: Path) -> None:
    """Hard-links a file. Copies the file if the file system allows no more links to it."""
    try:
        os.link(source, place, follow_symlinks=False)
        return
    except FileExistsError:
        _remove(place)
    except OSError:
        if stat.S_ISREG(os.lstat(source).st_mode):
            _remove(place)
            shutil.copy2(source, place, follow_symlinks=False)
            return
        raise
    _put(source, place)


def _like(source: Path, target: Path) -> None:
    facts = source.stat()
    if os.geteuid() == 0:
        os.chown(target, facts.st_uid, facts.st_gid)
    os.chmod(target, stat.S_IMODE(facts.st_mode))
