"""Finds an engine's images, and makes the prepared images from which sandboxes start.

A prepared image adds to the original image the sandbox's user, mount points, and a copy of the repository.
The sandbox's user owns the copy, but cannot enter the folder that contains it. Each image is prepared once on
each engine, and later found by a tag.
"""

import hashlib
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swelab.sandbox import isolation
from swelab.sandbox.container_owner import labels
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.protocol import SCRIPT_FOLDERS, SCRIPTS, Image, ImageMissing, SandboxLost
from swelab.sandbox.pulled_images import image_variables
from swelab.sandbox.reap import PREPARED
from swelab.sandbox.rootfs import ETC, gitconfig

_PART = r"[A-Za-z0-9]+(?:(?:\.|_{1,2}|-+)[A-Za-z0-9]+)*"
_DIGEST = r"sha256:[0-9a-f]{64}"
_NAMED = rf"(?:{_PART}(?::[0-9]{{1,5}})?/)?{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@{_DIGEST})?"
IMAGE_NAME = f"(?:{_DIGEST}|{_NAMED})"
"""Pattern of image names that may be part of a request path to an engine. All other names are refused."""
UID = 61000  # above the ids of people's accounts, below those that systemd uses
_SCRIPT = Path(__file__).with_name("docker_prepare.sh").read_text()
_PREPARE_SECONDS = 1800
_HOSTS = "/.swelab/hosts"  # path in the image; docker_prepare.sh writes the file
# Empty values for variables that affect a shell before its first line runs.
NEUTRAL = ("BASH_ENV=", "ENV=", "LD_PRELOAD=", "LD_LIBRARY_PATH=")


@dataclass(frozen=True)
class PreparedImage:
    """A prepared image.

    id: id of the prepared image in the engine. environment: variables that the original image declares.
    hosts: path of the image's hosts file on the engine's machine, or "" if it is unknown.
    """

    id: str
    environment: dict[str, str]
    hosts: str = ""


class EngineImages:
    """Finds and prepares images. Thread-safe."""

    def __init__(self) -> None:
        self._images: dict[tuple[str, str, bool], PreparedImage] = {}
        self._lock = threading.Lock()

    def prepare(self, engine: DockerEngine, image: Image) -> PreparedImage:
        """Returns the prepared image from which a sandbox starts.

        Raises ImageMissing, SandboxLost, OSError (disk full).
        """
        key = _key(image)
        with self._lock:
            if key not in self._images:
                original = find_image(engine, image)
                environment = image_variables(original.get("Config"))
                made = _prepare(engine, original["Id"], image)
                self._images[key] = PreparedImage(made, environment, _hosts_of(engine, made))
            return self._images[key]

    def forget(self, image: Image) -> None:
        """Forgets a prepared image that the engine no longer has. The next use prepares the image again."""
        with self._lock:
            self._images.pop(_key(image), None)


def _key(image: Image) -> tuple[str, str, bool]:
    return image.digest, image.workdir, image.for_scripts


def find_image(engine: DockerEngine, image: Image) -> dict[str, Any]:
    """Returns the engine's description of the image with the digest `image.digest`.

    The digest is compared with the image's id and the digests of its manifests. The name need not match.
    Raises ImageMissing.
    """
    bare = image.name.partition("@")[0]
    head, colon, tag = bare.rpartition(":")
    repository = head if colon and "/" not in tag else bare
    for reference in (f"{repository}@{image.digest}", image.digest, image.name):
        if not re.fullmatch(IMAGE_NAME, reference, re.ASCII):
            continue  # another name could lead to another path of the engine's API
        try:
            with engine.request(f"looking for image {image.name}"):
                image_data: dict[str, Any] = engine.api.inspect_image(reference)
        except (ImageMissing, SandboxLost) as error:
            if type(error) not in (ImageMissing, SandboxLost):
                raise
            continue  # the engine has no such image, or refuses the name
        if not isinstance(image_data, dict) or not isinstance(image_data.get("Id"), str):
            continue
        digests = [name.rpartition("@")[2] for name in image_data.get("RepoDigests") or []]
        if image.digest in (image_data["Id"], *digests):
            return image_data
    raise ImageMissing(f"the engine at {engine.address} has no image {image.name} ({image.digest})")


def _prepare(engine: DockerEngine, original: str, image: Image) -> str:
    """Returns the id of a prepared image. Makes the image if the engine does not have it.

    original: id of the original image.
    """
    linked = SCRIPT_FOLDERS if image.for_scripts else ()
    recipe = "\0".join((original, image.workdir, _SCRIPT, gitconfig(), ETC["hosts"], str(UID), *linked))
    tag = hashlib.sha256(recipe.encode()).hexdigest()[:32]
    try:
        with engine.request("looking for a prepared image"):
            return str(engine.api.inspect_image(f"swelab-prepared:{tag}")["Id"])
    except ImageMissing:
        pass
    settings = {
        "Entrypoint": ["/bin/bash", "--norc", "--noprofile", "-c", _SCRIPT, "prepare"],
        "Cmd": [str(UID), image.workdir, gitconfig(), ETC["hosts"], SCRIPTS, *linked],
        "User": "0:0",
        "WorkingDir": "/",
        "Env": list(NEUTRAL),
        "Labels": labels(),
    }
    container = engine.create(original, settings, isolation.docker("CHOWN", "DAC_OVERRIDE", "FOWNER"))
    try:
        engine.start(container)
        with engine.request(f"preparing image {image.name}"):
            code = engine.api.wait(container, timeout=_PREPARE_SECONDS)["StatusCode"]
            if code:
                said = engine.api.logs(container).decode(errors="replace").strip().splitlines()
                raise _unfit(image, said[-1] if said else f"exit {code}")
            conf = {"Labels": {PREPARED: image.digest}, "Healthcheck": {"Test": ["NONE"]}, "Volumes": {}}
            made = engine.api.commit(container, repository="swelab-prepared", tag=tag, conf=conf)
        return str(made["Id"])
    finally:
        engine.remove(container)


def _hosts_of(engine: DockerEngine, prepared: str) -> str:
    """Returns the path of a prepared image's hosts file on the engine's machine.

    The file is in the image's last layer. Returns "" if the storage driver does not store layers in folders.
    """
    with engine.request("looking at a prepared image"):
        driver = engine.api.inspect_image(prepared).get("GraphDriver") or {}
    layer = (driver.get("Data") or {}).get("UpperDir")
    return f"{layer}{_HOSTS}" if layer else ""


def _unfit(image: Image, message: str) -> Exception:
    if "no space left on device" in message.lower():
        return OSError(28, f"preparing image {image.name}: the engine's disk is full")
    return SandboxLost(f"image {image.name} cannot hold a sandbox: {message}")
