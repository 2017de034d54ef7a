"""The pull stage. It pulls all images of a subset's tasks, several at once. It can be resumed."""

import os
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from swelab.choices import BACKENDS, load
from swelab.console.terminal import Progress
from swelab.images.engine_images import EnginePuller
from swelab.images.errors import EngineFailed, ImageError, ImageUnknown, ProgramMissing, RegistryUnreachable
from swelab.images.image_names import Name, behind, is_file, parse_image_name
from swelab.images.install_layer import install_in_image
from swelab.images.registry import Registry, compressed_bytes
from swelab.jobs.journal import Journal
from swelab.records import Fault, Record, digest, sha256_file, shorten
from swelab.records.image_records import FailedImage, HeldImage, Images, PulledImage
from swelab.records.task_records import Leak
from swelab.sandbox.protocol import WORKDIR, Image
from swelab.sandbox.pulled_images import working_directory


def file_record(name: str) -> HeldImage:
    """Returns the record of a `.sif` file that a task names. Raises ImageUnknown."""
    path = Path(name)
    if not path.is_file():
        raise ImageUnknown(
            f"image {name}: no such file; make it with: apptainer pull {name} docker://<image>"
        )
    digest, size = f"sha256:{sha256_file(path)}", path.stat().st_size
    return HeldImage(digest=digest, bytes=size, folder=str(path.absolute()), workdir=WORKDIR)


def pull_command(source: Name, digest: str, path: Path, architecture: str) -> list[str]:
    """Returns the command line that pulls an image from a registry into the file `path`."""
    return ["apptainer", "pull", "--arch", architecture, str(path), f"docker://{source.base}@{digest}"]


class ApptainerPuller:
    """Pulls images into `folder`/sif/<hex>.sif with the program `apptainer`."""

    def __init__(self, folder: Path, registry: Registry, architecture: str = "amd64"):
        self.folder, self.registry, self.architecture = folder, registry, architecture
        (folder / "sif").mkdir(parents=True, exist_ok=True)

    def pull(
        self, name: Name, source: Name, on_bytes: Callable[[int], None] = lambda count: None
    ) -> HeldImage:
        """Pulls the image `name` from `source` and returns its record. Raises ImageError."""
        digest, _ = self.registry.resolve(source, self.architecture)
        relative = Path("sif") / f"{digest.removeprefix('sha256:')}.sif"
        path = self.folder / relative
        if not path.is_file():
            part = path.with_suffix(f".{os.getpid()}.part")
            command = pull_command(source, digest, part, self.architecture)
            if shutil.which(command[0]) is None:
                raise ProgramMissing(f"image {name}: no program `apptainer` to run: {' '.join(command)}")
            done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
            if done.returncode or not part.is_file():
                part.unlink(missing_ok=True)
                raise EngineFailed(
                    f"image {name}: apptainer: {shorten(done.stderr.decode(errors='replace'))}"
                )
            part.rename(path)
        size = path.stat().st_size
        return HeldImage(digest=digest, bytes=size, folder=str(relative), workdir=WORKDIR)


Check = Callable[[Image], tuple[int, list[Leak]]]
"""A function that maps an image to (number of its checked tasks, locations in the image that reveal answers).
"""


class Puller(Protocol):
    """A way to obtain images: a folder of unpacked images, an engine, or a folder of apptainer files."""

    def pull(self, name: Name, source: Name, on_bytes: Callable[[int], None]) -> HeldImage:
        """Obtains the image `name` from `source`. Calls `on_bytes` with the size of each part.

        Raises ImageError.
        """


class RemotePuller:
    """Finds the digests of images that are on other machines (docs/pool.md)."""

    def __init__(self, registry: Registry, architecture: str):
        self.registry, self.architecture = registry, architecture

    def pull(
        self, name: Name, source: Name, on_bytes: Callable[[int], None] = lambda count: None
    ) -> HeldImage:
        """Returns the image's digest, size in bytes and working directory. Fetches no layer.

        Raises ImageError.
        """
        found, manifest = self.registry.resolve(source, self.architecture)
        workdir = working_directory(self.registry.config(source, manifest).get("config"))
        return HeldImage(digest=found, bytes=compressed_bytes(manifest), folder="", workdir=workdir)


def open_puller(backend: str, folder: Path, registry: Registry, architecture: str) -> Puller:
    """Returns the puller for the sandboxes of `backend`. Raises EngineFailed."""
    chosen = BACKENDS[backend]
    where = (folder,) if chosen.keeps_files else ()
    puller: Puller = load(chosen.puller)(*where, registry, architecture)
    return puller


class FetchProgress:
    """Counts fetched bytes and prints the count from time to time, since one image may take minutes.

    Thread-safe.
    """

    def __init__(self, every_seconds: float = 20):
        self.bytes, self.every = 0, every_seconds
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def __call__(self, count: int) -> None:
        with self._lock:
            self.bytes += count
            now = time.monotonic()
            if now - self._last < self.every:
                return
            self._last = now
        print(f"pull images: {self.bytes / 1e6:.0f} MB fetched", file=sys.stderr, flush=True)


class Pulling:
    """Pulls images by name. Images that the journal lists as finished need no request.

    key: all inputs of a pull besides the image's name. steps: maps an image's name to bash code that runs in
    the image, with a network, before its first use. searches: maps an image's name to a digest of what
    `check` reads besides the image. If only this digest changes, the image is searched again, not pulled.
    """

    def __init__(
        self,
        puller: Puller,
        folder: Path,
        prefix: str,
        journal: Journal,
        check: Check,
        key: str,
        steps: Mapping[str, str] = MappingProxyType({}),
        searches: Mapping[str, str] = MappingProxyType({}),
    ):
        self.puller, self.folder, self.prefix = puller, folder, prefix
        self.journal, self.check, self.key, self.steps = journal, check, key, steps
        self.searches = searches
        self.present = 0
        self.fetched = FetchProgress()
        self._written = threading.Lock()

    def one(self, text: str) -> PulledImage:
        """Returns the record of one image, and pulls the image if necessary.

        Raises ImageError and other Faults.
        """
        steps = self.steps.get(text, "")
        key = digest([text, self.prefix, self.key, *([steps] if steps else [])])
        entry = self.journal.get(key) if key in self.journal else {}
        search = self.searches.get(text, "")
        earlier, file, moment = self._recall(text, entry), entry.get("file"), ""
        if earlier:
            if entry.get("search") == search:
                with self._written:
                    self.present += 1
                return earlier
            image, moment = HeldImage.of(_without_search(earlier)), earlier.pulled
        else:
            image, file = self._pull(text, steps)
        folder = (self.folder / image.folder).absolute() if image.folder else None
        checked, leaks = self.check(Image(text, image.digest, folder, image.workdir))
        moment = moment or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        record = PulledImage.of({**image, "pulled": moment, "checked": checked, "leaks": leaks})
        with self._written:
            self.present += bool(earlier)
            self.journal.append({"key": key, "name": text, "image": record, "search": search, "file": file})
        return record

    def _pull(self, text: str, steps: str) -> tuple[HeldImage, list[int] | None]:
        """Obtains an image and runs its install steps. Returns its record and the facts of its file."""
        if is_file(text):
            file = _file_facts(Path(text))  # before the digest, so that a later change counts
            image = file_record(text)
        else:
            name = parse_image_name(text)
            image = self.puller.pull(name, behind(name, self.prefix), self.fetched)
            file = _file_facts(self.folder / image.folder) if image.folder else None
        return (install_in_image(self.puller, image, steps) if steps else image), file

    def _recall(self, text: str, entry: Record) -> PulledImage | None:
        """Returns the record in a journal entry if its image is still there, unchanged."""
        record = PulledImage.of(entry["image"]) if entry else None
        return record if record and self._there(text, record, entry.get("file")) else None

    def _there(self, text: str, record: PulledImage, file: list[int] | None) -> bool:
        if record.folder:
            path = self.folder / record.folder
            return path.exists() and _file_facts(path) == file
        if not isinstance(self.puller, EnginePuller):
            return False
        if "install" in record and not record.install:
            return self.puller.has_made(record.digest)
        return self.puller.holds(parse_image_name(text), record.digest)


def _without_search(record: PulledImage) -> Record:
    return {name: value for name, value in record.items() if name not in ("pulled", "checked", "leaks")}


def _file_facts(path: Path) -> list[int] | None:
    """Returns facts that differ if a file was replaced. Returns None for anything but a regular file."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return [facts.st_mtime_ns, facts.st_size] if stat.S_ISREG(facts.st_mode) else None


def pull_images(names: list[str], pulling: Pulling, workers: int) -> Images:
    """Pulls images. Returns a record of the pulled images, the reasons of failures, and counts.

    Raises RegistryUnreachable at the first image whose registry has answered no request at all.
    """
    images = dict[str, PulledImage]()
    failed = dict[str, FailedImage]()
    progress = Progress(len(names), "pull images")
    for name, result in _in_parallel(names, pulling.one, workers):
        if isinstance(result, RegistryUnreachable):
            progress.close()
            raise RegistryUnreachable(f"{result}; none of its images can be pulled (network? image_prefix?)")
        if isinstance(result, Fault):
            reason = result.reason if isinstance(result, ImageError) else "failed"
            failed[name] = FailedImage(reason=reason, error=str(result))
        else:
            images[name] = result
        progress.done(name in images)
    progress.close()
    counts = Counter(f"failed_{failure.reason}" for failure in failed.values())
    counts["named"], counts["kept"] = len(names), pulling.present
    counts["pulled"] = len(images) - pulling.present
    if any("install" in image for image in images.values()):
        counts["install_failed"] = sum(bool(image.install) for image in images.values())
    counts["leaking"] = sum(bool(image.leaks) for image in images.values())
    ordered = {name: images[name] for name in names if name in images}
    return Images(images=ordered, failed=dict(sorted(failed.items())), counts=dict(sorted(counts.items())))


def tell_failed(record: Images, most: int) -> None:
    """Prints a line on stderr for each image that could not be pulled or prepared.

    Raises Fault if more than `most` images could not be pulled.
    """
    for name, failure in record.failed.items():
        print(f"not pulled: {name}: {failure.error}", file=sys.stderr)
    for name, image in record.images.items():
        if image.install:
            print(f"{name}: {image.install}", file=sys.stderr)
    if (count := len(record.failed)) > most:
        first, named = next(iter(record.failed.values())).error, len(record.images) + count
        raise Fault(f"{count} of {named} images could not be pulled; the first: {first}")


def _in_parallel(
    names: list[str], work: Callable[[str], PulledImage], workers: int
) -> Iterator[tuple[str, PulledImage | Fault]]:
    """Yields (name, image or fault) for each image, in order of completion."""

    def attempt(name: str) -> PulledImage | Fault:
        try:
            return work(name)
        except Fault as fault:
            return fault

    with ThreadPoolExecutor(workers) as pool:
        try:
            futures = {pool.submit(attempt, name): name for name in names}
            for future in as_completed(futures):
                yield futures[future], future.result()
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
