"""Unpacks one layer of an image into a separate folder, so that images with the layer can share its files.

Layers are hostile input. Nothing is written through a symlink, names cannot leave the folder, and devices and
setuid bits are omitted. Some entries can be resolved only with the layers below: whiteouts, hard links to
lower files, unlisted parents. Such entries are recorded in `Notes` next to the folder, for `image_store`.
"""

import errno
import gzip
import io
import os
import shutil
import stat
import tarfile
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

import zstandard

from swelab.images.errors import ImageBroken

WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_CHUNK = 1 << 20
_NAMES = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL, errno.ENOTDIR, errno.ENOTEMPTY)
_MOST_ENTRIES, _MOST_BYTES = 20_000_000, 1 << 40


@dataclass
class Notes:
    """The entries of a layer that can be resolved only with the layers below it.

    Paths are relative, without a leading slash.
    """

    whiteouts: list[str] = field(default_factory=list)  # paths of lower layers that this layer removes
    opaque: list[str] = field(default_factory=list)  # folders whose content in lower layers is hidden
    implied: list[str] = field(default_factory=list)  # folders that the layer uses but does not list
    links: list[tuple[str, str]] = field(default_factory=list)  # hard links (name, lower path)
    skipped: int = 0  # number of devices
    files: int = 0
    bytes: int = 0  # size of all regular files together

    def record(self) -> dict[str, Any]:
        """Returns the notes as a JSON object."""
        return asdict(self)


def unpack_layer(archive: Path, folder: Path, label: str) -> Notes:
    """Unpacks a layer (tar; plain, gzip or zstd) into the existing empty folder `folder`.

    `label` begins every error message. Raises ImageBroken, OSError (disk full).
    """
    try:
        with open(archive, "rb") as raw, _open_layer(raw) as stream:
            return _Unpacking(folder, label).run(stream)
    except (
        tarfile.TarError,
        EOFError,
        zlib.error,
        gzip.BadGzipFile,
        zstandard.ZstdError,
        ValueError,
    ) as error:
        raise ImageBroken(f"{label}: not a readable archive: {error}") from None


def _open_layer(raw: IO[bytes]) -> IO[bytes]:
    head = raw.read(4)
    raw.seek(0)
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=raw, mode="rb")  # type: ignore[return-value]
    if head == _ZSTD:
        reader = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
            raw, read_across_frames=True
        )
        return io.BufferedReader(reader, _CHUNK)
    return raw


class _Unpacking:
    """The state of unpacking one layer. real: paths that are known to be folders, not symlinks."""

    def __init__(self, folder: Path, label: str):
        self.folder, self.label, self.notes = folder, label, Notes()
        self.real = {PurePosixPath(".")}
        self.modes: dict[PurePosixPath, tarfile.TarInfo] = {}
        self.as_root = os.geteuid() == 0

    def run(self, stream: IO[bytes]) -> Notes:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=_CHUNK) as tar:
            for number, entry in enumerate(tar):
                if number >= _MOST_ENTRIES:
                    raise ImageBroken(f"{self.label}: more than {_MOST_ENTRIES} entries")
                try:
                    self._add(tar, entry)
                except (ValueError, OverflowError) as error:  # such as NUL in a link or numbers out of range
                    raise ImageBroken(f"{self.label}: entry {entry.name!r}: {error}") from None
                except OSError as error:
                    if error.errno not in _NAMES:
                        raise
                    raise ImageBroken(f"{self.label}: entry {entry.name!r}: {error.strerror}") from None
        for path, entry in self.modes.items():  # last, since a folder's mode may forbid writing into it
            self._finish(self.folder / path, entry)
        for path in self.real - set(self.modes):
            self.notes.implied.append(str(path))
        self.notes.implied.sort()
        return self.notes

    def _add(self, tar: tarfile.TarFile, entry: tarfile.TarInfo) -> None:
        path = self._inner(entry.name, entry.name)
        if path.name == OPAQUE:
            self.notes.opaque.append(str(path.parent))
        elif path.name.startswith(WHITEOUT):
            self.notes.whiteouts.append(str(path.parent / self._white_out(path, entry.name)))
        elif path == PurePosixPath("."):
            if entry.isdir():
                self.modes[path] = entry
        else:
            self._enter(path.parent, entry.name)
            self._place(tar, entry, path)

    def _inner(self, name: str, entry: str) -> PurePosixPath:
        """Returns a name of the archive as a path below the root. Raises ImageBroken."""
        path = PurePosixPath(name.lstrip("/") or ".")
        if ".." in path.parts or "\0" in name or len(path.parts) > 255:
            raise ImageBroken(f"{self.label}: entry {entry!r} leaves the image")
        return path

    def _white_out(self, path: PurePosixPath, entry: str) -> str:
        name = path.name.removeprefix(WHITEOUT)
        if name in ("", ".", ".."):
            raise ImageBroken(f"{self.label}: entry {entry!r} removes no file")
        return name

    def _enter(self, parent: PurePosixPath, entry: str) -> None:
        """Ensures that `parent` is a folder of this layer and that its path contains only folders."""
        if parent in self.real:
            return
        self._enter(parent.parent, entry)
        place = self.folder / parent
        try:
            place.mkdir(0o755)
        except FileExistsError:
            if not stat.S_ISDIR(place.lstat().st_mode):
                raise ImageBroken(f"{self.label}: entry {entry!r} goes through a link or a file") from None
        self.real.add(parent)

    def _place(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, path: PurePosixPath) -> None:
        place = self.folder / path
        if entry.isdir():
            self._make_room(path, place, keep_folder=True)
            place.mkdir(0o755, exist_ok=True)
            self.real.add(path)
            self.modes[path] = entry
            return
        if not (entry.isreg() or entry.issym() or entry.islnk() or entry.isfifo()):
            self.notes.skipped += 1  # only devices are left
            return
        self._make_room(path, place, keep_folder=False)
        self.notes.files += 1
        if entry.islnk():
            self._link(entry, path, place)
        elif entry.issym():
            os.symlink(entry.linkname, place)
            self._own(place, entry)
        elif entry.isfifo():
            os.mkfifo(place)
            self._finish(place, entry)
        else:
            self._write(tar, entry, place)

    def _make_room(self, path: PurePosixPath, place: Path, keep_folder: bool) -> None:
        """Removes an earlier entry with the same name, which a later entry replaces."""
        try:
            kind = place.lstat().st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISDIR(kind):
            place.unlink()
        elif not keep_folder:
            shutil.rmtree(place)
            self.real = {other for other in self.real if path not in (other, *other.parents)}
            self.modes = {k: v for k, v in self.modes.items() if path not in (k, *k.parents)}

    def _link(self, entry: tarfile.TarInfo, path: PurePosixPath, place: Path) -> None:
        target = self._inner(entry.linkname, entry.name)
        source = self.folder
        for part in target.parts:
            if source.is_symlink():
                raise ImageBroken(f"{self.label}: entry {entry.name!r} links through a symlink")
            source = source / part
        try:
            os.link(source, place, follow_symlinks=False)
        except FileNotFoundError:
            self.notes.links.append((str(path), str(target)))
        except (IsADirectoryError, PermissionError):
            raise ImageBroken(f"{self.label}: entry {entry.name!r} is a hard link to a folder") from None

    def _write(self, tar: tarfile.TarFile, entry: tarfile.TarInfo, place: Path) -> None:
        self.notes.bytes += entry.size
        if self.notes.bytes > _MOST_BYTES:
            raise ImageBroken(f"{self.label}: more than {_MOST_BYTES} bytes of files")
        source = tar.extractfile(entry)
        assert source is not None
        with open(os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            shutil.copyfileobj(source, file, _CHUNK)
            if file.tell() != entry.size:
                raise ImageBroken(f"{self.label}: entry {entry.name!r} is cut short")
        self._finish(place, entry)

    def _finish(self, place: Path, entry: tarfile.TarInfo) -> None:
        """Sets owner, mode and time of a file or folder, without setuid bits.

        The user who pulls can always read and remove it.
        """
        self._own(place, entry)
        os.chmod(place, entry.mode & 0o1777 | (0o700 if entry.isdir() else 0o400))
        seconds = entry.mtime if 0 <= entry.mtime < 1 << 33 else 0
        os.utime(place, (seconds, seconds))

    def _own(self, place: Path, entry: tarfile.TarInfo) -> None:
        if self.as_root and 0 <= entry.uid < 2**31 and 0 <= entry.gid < 2**31:
            os.lchown(place, entry.uid, entry.gid)
