"""Pulls images into a Docker engine by digest with the docker SDK, and tags them with their own names."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import RequestException

from swelab.images.errors import EngineFailed, ImageError, ImageUnknown, NoRoom, RateLimited
from swelab.images.image_names import DEFAULT, Name
from swelab.images.registry import Again, Registry, compressed_bytes
from swelab.records import shorten
from swelab.records.image_records import HeldImage
from swelab.sandbox.pulled_images import working_directory

_SPARE_BYTES = 1 << 30
_RATIO = 4  # bytes on disk for each compressed byte; includes the compressed layer, kept until it is unpacked
_PULL_SECONDS = 3600


class EnginePuller:
    """Pulls images into the engine that $DOCKER_HOST names, or into the local engine. Thread-safe.

    The engine itself resumes downloads and uses its own mirrors. Raises EngineFailed if the engine does not
    respond.
    """

    def __init__(self, registry: Registry, architecture: str = "amd64"):
        self.registry, self.architecture = registry, architecture
        try:
            self.client: Any = docker.from_env(timeout=_PULL_SECONDS)
            self.folder = Path(self.client.info()["DockerRootDir"])
        except (DockerException, RequestException) as error:
            raise EngineFailed(f"the container engine does not answer: {shorten(str(error))}") from None

    def holds(self, name: Name, digest: str) -> bool:
        """Returns whether the engine has an image with this digest under this name."""
        facts = self._inspect(_familiar(name), str(name)) or {}
        return any(entry.endswith(f"@{digest}") for entry in facts.get("RepoDigests") or [])

    def has_made(self, digest: str) -> bool:
        """Returns whether the engine has an image with this id.

        Such an image was built on this machine, not pulled.
        """
        facts = self._inspect(digest, digest) or {}
        return bool(facts.get("Id") == digest)

    def _inspect(self, reference: str, label: str) -> dict[str, Any] | None:
        """Returns the engine's description of an image, or None if it has no such image."""
        try:
            facts: dict[str, Any] = self.client.api.inspect_image(reference)
        except ImageNotFound:
            return None
        except (DockerException, RequestException) as error:
            raise EngineFailed(f"image {label}: {shorten(str(error))}") from None
        return facts

    def pull(
        self, name: Name, source: Name, on_bytes: Callable[[int], None] = lambda count: None
    ) -> HeldImage:
        """Pulls the image `name` into the engine and returns its record.

        source: `name`, or the image's name at a mirror. Raises ImageError.
        """
        digest, manifest = self.registry.resolve(source, self.architecture)
        by_digest, reference = f"{source.base}@{digest}", _familiar(name)
        if not self.holds(name, digest):
            self._check_room(name, compressed_bytes(manifest))
            self.registry.transport.patiently(source, lambda: self._pull_once(name, source, digest, on_bytes))
            self._tag(name, by_digest)
            reference = by_digest if name.digest else reference
        known = self._inspect(reference, str(name))
        if known is None:
            raise EngineFailed(f"image {name}: the engine has no {reference} after the pull")
        workdir = working_directory(known.get("Config"))
        return HeldImage(digest=digest, bytes=known["Size"], folder="", workdir=workdir)

    def _pull_once(self, name: Name, source: Name, digest: str, on_bytes: Callable[[int], None]) -> None:
        bytes_by_layer: dict[str, int] = {}
        try:
            events = self.client.api.pull(
                source.base, tag=digest, stream=True, decode=True, platform=f"linux/{self.architecture}"
            )
            for event in events:
                if "error" in event:
                    raise _error_of(name, str(event["error"]), bool(bytes_by_layer))
                if event.get("status") == "Downloading":
                    current = int((event.get("progressDetail") or {}).get("current") or 0)
                    on_bytes(max(0, current - bytes_by_layer.get(event["id"], 0)))
                    bytes_by_layer[event["id"]] = max(current, bytes_by_layer.get(event["id"], 0))
        except ImageNotFound:
            raise ImageUnknown(f"image {name}: the engine finds no {source.base}@{digest}") from None
        except (APIError, RequestException) as error:
            raise _error_of(
                name, str(getattr(error, "explanation", None) or error), bool(bytes_by_layer)
            ) from None

    def _tag(self, name: Name, by_digest: str) -> None:
        if name.digest:
            return  # a name by digest needs no tag
        try:
            self.client.api.tag(by_digest, _familiar(name).rpartition(":")[0], name.tag, force=True)
        except (APIError, RequestException) as error:
            raise EngineFailed(f"image {name}: could not be tagged: {shorten(str(error))}") from None

    def _check_room(self, name: Name, layers: int) -> None:
        """Raises NoRoom if the image does not fit.

        Checks only if the engine's folder is on this machine.
        """
        if not self.folder.is_dir():
            return
        need, free = _RATIO * layers, shutil.disk_usage(self.folder).free - _SPARE_BYTES
        if need > free:
            raise NoRoom(
                f"image {name}: needs about {need / 1e9:.1f} GB in {self.folder}, "
                f"{max(free, 0) / 1e9:.1f} GB are free"
            )


def _error_of(name: Name, message: str, progressed: bool) -> ImageError | Again:
    """Returns the exception for an engine error. The kind of error is recognised by the message."""
    text, line = message.lower(), f"image {name}: {shorten(message)}"
    if "toomanyrequests" in text or "too many requests" in text or "rate limit" in text:
        return Again(RateLimited(line))
    if "no space left" in text:
        return NoRoom(line)
    if "not found" in text or "manifest unknown" in text or "does not match the specified platform" in text:
        return ImageUnknown(line)
    return Again(EngineFailed(line), progressed=progressed)


def _familiar(name: Name) -> str:
    """Returns the name in the engine's form, which omits the name of Docker's own registry."""
    text = str(name)
    if name.registry != DEFAULT:
        return text
    return text.removeprefix(f"{DEFAULT}/").removeprefix("library/")
