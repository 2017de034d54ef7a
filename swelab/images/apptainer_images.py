"""Images for apptainer. Uses a `.sif` file as it is, and converts other images by `apptainer pull`."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from swelab.images.errors import EngineFailed, ImageUnknown, ProgramMissing
from swelab.images.image_names import Name
from swelab.images.registry import Registry
from swelab.records import sha256_file, shorten
from swelab.records.image_records import HeldImage
from swelab.sandbox.protocol import WORKDIR


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
