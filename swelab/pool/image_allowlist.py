"""Checks images against an allow-list. A host creates sandboxes only from images on the list."""

import re
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from swelab.records import read_text, shorten
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.docker_images import IMAGE_NAME, find_image
from swelab.sandbox.protocol import Image, ImageMissing

_HUB = "docker.io/"


class AllowedImages:
    """The allow-list of a host: a file with one pattern per line, for example `swebench/*` or a digest.

    The file is read at each use. If the requested name or digest matches no pattern, the engine is not asked.
    A name or digest that the engine reports for the image must match a pattern too. Without a file, only the
    sandbox image is allowed.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.patterns()

    def patterns(self) -> list[str]:
        """Returns the current patterns of the file. Raises InputError."""
        if self._path is None:
            return []
        lines = (line.partition("#")[0].strip() for line in read_text(self._path).splitlines())
        return [line for line in lines if line]

    def find(self, engine: DockerEngine, name: str, digest: str, workdir: str) -> Image:
        """Returns the image with this name if it is allowed. Raises ImageMissing, SandboxLost."""
        self._check(name, _requested_names(name, digest))
        if not digest:
            with engine.request(f"looking for image {name}"):
                facts = engine.api.inspect_image(name)
            digest = str(facts.get("Id", "")) if isinstance(facts, dict) else ""
        image = Image(name, digest, workdir=workdir)
        record = find_image(engine, image)
        known = {record["Id"]}.union(*map(_forms, record.get("RepoTags") or ()))
        for full in record.get("RepoDigests") or ():
            known |= {full, full.rpartition("@")[2], full.rpartition("@")[0]}
        self._check(name, known)
        return image

    def _check(self, name: str, names: set[str]) -> None:
        if not _any_match(names, self.patterns()):
            raise ImageMissing(f"image {name} is not on this host's list of allowed images")

    def allowed_names(self, engine: DockerEngine) -> list[str]:
        """Returns the names of the engine's images that are on the allow-list."""
        with engine.request("listing images"):
            images = engine.api.images()
        names = {tag for image in images for tag in (image.get("RepoTags") or [])} - {"<none>:<none>"}
        patterns = self.patterns()
        return sorted(name for name in names if _any_match(_forms(name), patterns))


def _any_match(names: Collection[str], patterns: Sequence[str]) -> bool:
    every = {form for name in names for form in (name, *_hub_names(name))}
    return any(fnmatchcase(each, pattern) for each in every for pattern in patterns)


def _forms(tag: str) -> set[str]:
    """Returns the two forms in which a list may name an image: with its tag and without its tag."""
    return {tag, tag.rpartition(":")[0]}


def _hub_names(name: str) -> list[str]:
    """Returns equivalent names of a Docker Hub image.

    An allow-list may contain the prefix `docker.io/`, but engines omit it.
    """
    if name.startswith(_HUB):
        bare = name.removeprefix(_HUB)
        return [bare, bare.removeprefix("library/")]
    first, slash, _ = name.partition("/")
    if not slash:
        return [] if name.startswith("sha256:") else [f"{_HUB}{name}", f"{_HUB}library/{name}"]
    return [] if re.search(r"[.:]|^localhost$", first) else [f"{_HUB}{name}"]


def _requested_names(name: str, digest: str) -> set[str]:
    """Returns the names and digests of a requested image, in every form that an allow-list may use.

    Raises ImageMissing if `name` is not a valid image name.
    """
    if not re.fullmatch(IMAGE_NAME, name, re.ASCII):
        raise ImageMissing(f"{shorten(name)!r} is not the name of an image")
    bare, _, own = name.partition("@")
    tag = bare if ":" in bare.rpartition("/")[2] else f"{bare}:latest"
    repository = tag.rpartition(":")[0]
    digests = {each for each in (digest, own, name if name.startswith("sha256:") else "") if each}
    return _forms(tag) | digests | {f"{repository}@{each}" for each in digests}
