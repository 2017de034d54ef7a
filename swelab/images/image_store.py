"""The folder of images for backends without an engine.

    layers/<hex>/, layers/<hex>.json   a layer's files and notes; <hex>: digest of the compressed layer
    roots/<hex>/,  roots/<hex>.json    an image's root, hard-linked from layers, and its configuration
    blobs/<hex>                        a layer that is being downloaded; removed when it is unpacked

Files and folders get their final names by a rename, so a file with such a name is complete. Only one process
works on a layer at a time. Other processes that need the layer wait.

An image's root folder consists of hard links to the files of its unpacked layers. So a layer that several
images share is on disk only once. A root needs space only for its folders and symlinks. A root is never
changed. Sandboxes mount it read-only, and copy the folders that they may write to.
"""

import errno
import fcntl
import gzip
import io
import json
import os
import shutil
import stat
import tarfile
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, Any

import zstandard

from swelab.images.errors import ImageBroken, NoRoom
from swelab.images.image_names import Name
from swelab.images.registry import Descriptor, Registry
from swelab.records import write_json
from swelab.records.image_records import HeldImage
from swelab.sandbox.protocol import WORKDIR
from swelab.sandbox.pulled_images import inside
from swelab.sandbox.scratch import ScratchFolder, prune, remove_tree

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


UNPACKED_RATIO = 4
"""Estimated bytes on disk for each compressed byte.

Images with Python have 2.5 to 3.5.
"""
_SPARE_BYTES = 256 << 20


class ImageStore:
    """Pulls images into `folder`. Safe for threads, and for processes that share the folder."""

    def __init__(self, folder: Path, registry: Registry, architecture: str = "amd64"):
        self.folder, self.registry, self.architecture = folder, registry, architecture
        self._promised = 0
        self._lock = threading.Lock()
        for name in ("blobs", "layers", "roots", "locks"):
            (folder / name).mkdir(parents=True, exist_ok=True)
            (folder / name).chmod(0o700)  # files of an image may have any owner and be writable for all
            prune(folder / name)

    def root(self, digest: str) -> Path:
        """Returns the path of the image with this digest, whether it exists or not."""
        return self.folder / "roots" / _hex(digest)

    def holds(self, digest: str) -> bool:
        """Returns whether the complete image is in the folder."""
        return self.root(digest).is_dir() and _notes_path(self.root(digest)).is_file()

    def pull(
        self, name: Name, source: Name, on_bytes: Callable[[int], None] = lambda count: None
    ) -> HeldImage:
        """Pulls the image `name` into the folder and returns its record.

        source: `name`, or the image's name at a mirror. Raises ImageError, OSError.
        """
        digest, manifest = self.registry.resolve(source, self.architecture)
        try:
            if not self.holds(digest):
                with self._room_for(name, manifest["layers"]):
                    layers = [self._layer(source, layer, on_bytes) for layer in manifest["layers"]]
                self._compose(name, digest, layers, self.registry.config(source, manifest))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise NoRoom(f"image {name}: the disk of {self.folder} became full") from None
            raise
        return self.record(digest)

    def record(self, digest: str) -> HeldImage:
        """Returns the record of an image that is in the folder."""
        root = self.root(digest)
        about = json.loads(_notes_path(root).read_text(encoding="utf-8"))
        testbed = inside(root, WORKDIR)
        configured = (about.get("config") or {}).get("WorkingDir") or WORKDIR
        return HeldImage(
            digest=digest,
            bytes=about["bytes"],
            folder=str(root.relative_to(self.folder)),
            workdir=WORKDIR if testbed and testbed.is_dir() else configured,
        )

    def _compose(
        self, name: Name, digest: str, layers: list[tuple[Path, Notes]], config: dict[str, Any]
    ) -> None:
        root = self.root(digest)
        with self.alone(digest), self.fresh("roots") as scratch:
            if self.holds(digest):
                return
            compose(layers, scratch, f"image {name}")
            facts = {"digest": digest, "name": str(name), "bytes": sum(notes.bytes for _, notes in layers)}
            write_json(_notes_path(root), {**config, **facts})
            if root.exists():
                remove_tree(root)
            scratch.rename(root)

    def _layer(self, source: Name, layer: Descriptor, on_bytes: Callable[[int], None]) -> tuple[Path, Notes]:
        digest = layer["digest"]
        folder = self.folder / "layers" / _hex(digest)
        with self.alone(digest):
            if not (folder.is_dir() and _notes_path(folder).is_file()):
                blob = self.folder / "blobs" / _hex(digest)
                self.registry.fetch(source, layer, blob, on_bytes)
                with self.fresh("layers") as scratch:
                    notes = unpack_layer(blob, scratch, f"image {source}, layer {digest}")
                    if folder.exists():
                        remove_tree(folder)
                    scratch.rename(folder)
                write_json(_notes_path(folder), notes.record())
                blob.unlink()
        return folder, Notes(**json.loads(_notes_path(folder).read_text(encoding="utf-8")))

    @contextmanager
    def alone(self, digest: str) -> Iterator[None]:
        """Locks a digest during the block, so that only one thread of one process works on it at a time."""
        with open(self.folder / "locks" / _hex(digest), "ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @contextmanager
    def fresh(self, kind: str) -> Iterator[Path]:
        """Yields an empty folder.

        The folder is removed with its content after the block unless it was renamed.
        """
        scratch = ScratchFolder(self.folder / kind)
        try:
            scratch.path.chmod(0o755)
            yield scratch.path
        finally:
            scratch.remove()

    @contextmanager
    def _room_for(self, name: Name, layers: list[Descriptor]) -> Iterator[None]:
        """Reserves disk space for an image during the block.

        Raises NoRoom if the image does not fit beside the images that other workers are pulling.
        """
        need = sum(
            self._bytes_needed(layer) for layer in {layer["digest"]: layer for layer in layers}.values()
        )
        with self._lock:
            free = shutil.disk_usage(self.folder).free - self._promised - _SPARE_BYTES
            if need > free:
                raise NoRoom(
                    f"image {name}: needs about {_gigabytes(need)} in {self.folder}, "
                    f"{_gigabytes(max(free, 0))} are free"
                )
            self._promised += need
        try:
            yield
        finally:
            with self._lock:
                self._promised -= need

    def _bytes_needed(self, layer: Descriptor) -> int:
        name = _hex(layer["digest"])
        if _notes_path(self.folder / "layers" / name).is_file():
            return 0
        blob = self.folder / "blobs" / name
        have = blob.stat().st_size if blob.exists() else 0
        return (1 + UNPACKED_RATIO) * int(layer["size"]) - have


def _hex(digest: str) -> str:
    return digest.removeprefix("sha256:")


def _notes_path(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.json")


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
