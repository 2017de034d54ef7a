"""Which images of an engine sandboxes may be made of."""

from fnmatch import fnmatchcase
from pathlib import Path

from swelab.records import read_text
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.docker_images import find_image
from swelab.sandbox.protocol import Image, ImageMissing


class AllowedImages:
    """Patterns (`swebench/*`, a digest, ...), one a line, of a file that may change while the server runs.

    They are held against the names and digests that the engine has for the image, never against what a
    caller says of it. Without a file only the sandbox image is allowed.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.patterns()

    def patterns(self) -> list[str]:
        """The patterns in the file now. Raises InputError."""
        if self._path is None:
            return []
        lines = (line.partition("#")[0].strip() for line in read_text(self._path).splitlines())
        return [line for line in lines if line]

    def found(self, engine: DockerEngine, name: str, digest: str, workdir: str) -> Image:
        """The image that a caller names, if it is allowed. Raises ImageMissing, SandboxLost."""
        if not digest:
            with engine.asked(f"looking for image {name}"):
                digest = str(engine.api.inspect_image(name)["Id"])
        image = Image(name, digest, workdir=workdir)
        record = find_image(engine, image)
        known = {record["Id"], *(record.get("RepoTags") or ())}
        for full in record.get("RepoDigests") or ():
            known |= {full, full.rpartition("@")[2], full.rpartition("@")[0]}
        patterns = self.patterns()
        if not any(fnmatchcase(each, pattern) for each in known for pattern in patterns):
            raise ImageMissing(f"image {name} is not on this host's list of allowed images")
        return image

    def listed(self, engine: DockerEngine) -> list[str]:
        """Names of the engine's images that are allowed."""
        with engine.asked("listing images"):
            images = engine.api.images()
        names = {tag for image in images for tag in (image.get("RepoTags") or [])} - {"<none>:<none>"}
        patterns = self.patterns()
        return sorted(name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns))
