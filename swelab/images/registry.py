"""A client of the OCI distribution API for digests, manifests, configs and layers of images.

The client verifies all content, and resumes downloads. It uses httpx instead of skopeo for two reasons.
First, cluster users who cannot install programs must be able to pull without a daemon. Second, an interrupted
download of a layer must resume where it stopped.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx

from swelab.images.errors import ImageBroken, ImageUnknown, RegistryDown
from swelab.images.image_names import DIGEST, Name
from swelab.images.registry_http import Again, Transport, json_object, read_document
from swelab.records import sha256_file, shorten

LISTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT = {"Accept": ", ".join(MANIFESTS + LISTS)}
_BIGGEST_DOCUMENT = 8 << 20

Descriptor = dict[str, Any]
"""A manifest's description of a layer or a config. The keys are mediaType, digest and size (bytes)."""


def compressed_bytes(manifest: dict[str, Any]) -> int:
    """Returns the compressed size of an image's layers in bytes."""
    return sum(int(layer["size"]) for layer in manifest["layers"])


class Registry:
    """Reads images from any registry through a Transport. Thread-safe. Faults are raised as ImageError."""

    def __init__(self, transport: Transport | None = None):
        self.transport = transport or Transport()

    def resolve(self, name: Name, architecture: str = "amd64") -> tuple[str, dict[str, Any]]:
        """Returns (digest, manifest) of the image for linux on `architecture`. Raises ImageError."""
        digest, document = self._manifest(name, name.digest or name.tag)
        if "manifests" in document:
            digest, document = self._manifest(name, _for_platform(document, architecture, name))
        try:
            parts = [document["config"], *document["layers"]]
            good = all(DIGEST.fullmatch(part["digest"]) and int(part["size"]) >= 0 for part in parts)
        except (KeyError, TypeError, ValueError):
            good = False
        if not good:
            raise ImageBroken(f"image {name}: its manifest is not that of a container image")
        return digest, document

    def _manifest(self, name: Name, reference: str) -> tuple[str, dict[str, Any]]:
        data = self._document(name, f"manifests/{reference}", _ACCEPT)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if DIGEST.fullmatch(reference) and digest != reference:
            raise ImageBroken(f"image {name}: the manifest sent for {reference} has another digest")
        document = json_object(data)
        if document is None:
            raise ImageBroken(f"image {name}: its manifest is not JSON")
        return digest, document

    def _document(self, name: Name, path: str, headers: dict[str, str]) -> bytes:
        def read(response: httpx.Response) -> bytes:
            return read_document(response, name, _BIGGEST_DOCUMENT)

        return self.transport.patiently(name, lambda: self.transport.get(name, path, headers, read))

    def config(self, name: Name, manifest: dict[str, Any]) -> dict[str, Any]:
        """Returns the image's config document, with Env, WorkingDir, ... under "config".

        Raises ImageError.
        """
        digest = manifest["config"]["digest"]
        data = self._document(name, f"blobs/{digest}", {})
        found = json_object(data)
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest or found is None:
            raise ImageBroken(f"image {name}: its config is not what its manifest says")
        return found

    def fetch(
        self, name: Name, layer: Descriptor, path: Path, on_bytes: Callable[[int], None] = lambda count: None
    ) -> None:
        """Downloads a layer to `path`, or continues a partial download, and checks the layer's digest.

        on_bytes: called with the number of bytes of each piece. Raises ImageError, OSError (disk full).
        """
        digest, size = layer["digest"], int(layer["size"])
        faults = 0

        def once() -> None:
            nonlocal faults
            have = path.stat().st_size if path.exists() else 0
            if have < size or not path.exists():
                headers = {"Range": f"bytes={have}-"} if have else {}
                self.transport.get(
                    name,
                    f"blobs/{digest}",
                    headers,
                    lambda response: _append(response, name, path, have, size, on_bytes),
                )
            if path.stat().st_size == size and f"sha256:{sha256_file(path)}" == digest:
                return
            path.unlink()
            faults += 1
            fault = ImageBroken(f"image {name}: the bytes sent as layer {digest} are others")
            if faults > 2:
                raise fault
            raise Again(fault)  # starts from zero: the partial file or a mirror's copy may be corrupt

        self.transport.patiently(name, once)


def _for_platform(index: dict[str, Any], architecture: str, name: Name) -> str:
    """Returns the digest of the manifest for linux/`architecture` in an image index."""
    try:
        offered = {
            part["digest"]: f"{part['platform']['os']}/{part['platform']['architecture']}"
            for part in index["manifests"]
            if "platform" in part and DIGEST.fullmatch(part["digest"])
        }
    except (KeyError, TypeError):
        raise ImageBroken(f"image {name}: its index is not that of a container image") from None
    for digest, platform in offered.items():
        if platform == f"linux/{architecture}":
            return str(digest)
    known = ", ".join(sorted(set(offered.values()) - {"unknown/unknown"})) or "nothing"
    raise ImageUnknown(f"image {name}: there is none for linux/{architecture}; there is one for {known}")


def _append(
    response: httpx.Response, name: Name, path: Path, have: int, size: int, on_bytes: Callable[[int], None]
) -> None:
    """Appends the response to the first `have` bytes. A response with the whole layer replaces them."""
    partial = response.status_code == 206
    room = size - have if partial else size
    with open(path, "ab" if partial else "wb") as file:
        try:
            for chunk in response.iter_raw(1 << 20):
                file.write(chunk[:room])
                on_bytes(len(chunk))
                room -= len(chunk)
                if room < 0:
                    break
        except httpx.TransportError as error:
            fault = RegistryDown(f"image {name}: a layer was cut off: {shorten(str(error))}")
            raise Again(fault, progressed=room < size - have) from None
