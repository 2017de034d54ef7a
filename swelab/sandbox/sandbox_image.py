"""The image that tasks without an image of their own run in on engines: our toolbox on a small Debian.

The rule `build_sandbox_image` makes it without an engine; the first process that needs it loads it into one.
"""

import errno
import os
from pathlib import Path

from swelab.records import InputError, read_json
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.docker_images import find_image
from swelab.sandbox.protocol import Image, ImageMissing

DEFAULT_RECORD = "results/images/sandbox/image.json"


def recorded_image() -> Image:
    """The image of the record at $SWELAB_SANDBOX_IMAGE, else of the rule's output. Raises ImageMissing."""
    path = Path(os.environ.get("SWELAB_SANDBOX_IMAGE") or DEFAULT_RECORD).absolute()
    try:
        record = read_json(path)
        return Image(record["name"], record["digest"], path.parent / record["folder"])
    except (InputError, OSError, KeyError, TypeError) as error:
        raise ImageMissing(
            f"no sandbox image at {path} (rule build_sandbox_image, or $SWELAB_SANDBOX_IMAGE): {error}"
        ) from None


def loaded(engine: DockerEngine) -> Image:
    """The image, made known to the engine. Raises ImageMissing, SandboxLost."""
    image = recorded_image()
    try:
        find_image(engine, image)
        return image
    except ImageMissing:
        pass
    assert image.folder
    archive = image.folder.with_name(image.folder.name + ".tar")
    try:
        with archive.open("rb") as stream, engine.asked(f"loading {archive}"):
            errors = [each["error"] for each in engine.api.load_image(stream) if "error" in each]
    except FileNotFoundError:
        raise ImageMissing(f"the engine has no image {image.name}, and there is no {archive}") from None
    if errors:
        full = "no space left on device" in errors[0].lower()
        raise OSError(
            errno.ENOSPC if full else errno.EIO, f"the engine could not load {archive}: {errors[0]}"
        )
    find_image(engine, image)
    return image
