"""The sandbox image: a small Debian with the toolbox. On engines, tasks without an image of their own use it.

The rule `build_sandbox_image` builds the image without an engine. The first process that needs the image
loads it into the engine.
"""

import errno
import functools
import os
import sys
from pathlib import Path

from swelab.records import InputError, read_json
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.docker_images import find_image
from swelab.sandbox.image_build import PACKAGES
from swelab.sandbox.protocol import Image, ImageMissing
from swelab.sandbox.python_view import INSTALLERS, is_one_of
from swelab.sandbox.rootfs import TOOLBOX, toolbox_path

DEFAULT_RECORD = "results/images/sandbox/image.json"


def recorded_image() -> Image:
    """Reads the record of the sandbox image and returns the image. Raises ImageMissing.

    The record is $SWELAB_SANDBOX_IMAGE, or by default the file that the rule `build_sandbox_image` writes.
    Prints a line, once, if a newly built image would have other packages.
    """
    path = Path(os.environ.get("SWELAB_SANDBOX_IMAGE") or DEFAULT_RECORD).absolute()
    try:
        record = read_json(path)
        image = Image(record["name"], record["digest"], path.parent / record["folder"])
        _tell_difference(path, path.parent / record["folder"], frozenset(record["packages"]))
        return image
    except (InputError, OSError, KeyError, TypeError) as error:
        raise ImageMissing(
            f"no sandbox image at {path} (rule build_sandbox_image, or $SWELAB_SANDBOX_IMAGE): {error}"
        ) from None


def difference(root: Path, debian: frozenset[str], toolbox: Path) -> str:
    """Describes how an image differs from a newly built image.

    Returns "" if there is no difference, or if we cannot know. root: the image's unpacked folder. debian:
    names of the image's Debian packages. toolbox: the venv that the image should contain.
    """
    wanted, found = _distributions(toolbox), _distributions(root / TOOLBOX.strip("/"))
    missing = sorted(set(PACKAGES) - {name.partition(":")[0] for name in debian})
    if not wanted or not (found or root.is_dir()):
        return ""
    stale, fresh = sorted(found - wanted), sorted(wanted - found | set(missing))
    told = [f"it has {', '.join(stale)}"] * bool(stale) + [f"it lacks {', '.join(fresh)}"] * bool(fresh)
    return " and ".join(told)


def _distributions(venv: Path) -> set[str]:
    """Returns the packages of a venv with versions, such as pytest-9.2.0, without installers."""
    found = (path.name for path in venv.glob("lib/python*/site-packages/*.dist-info"))
    return {name.removesuffix(".dist-info") for name in found if not is_one_of(name, INSTALLERS)}


@functools.cache
def _tell_difference(record: Path, root: Path, debian: frozenset[str]) -> None:
    if told := difference(root, debian, toolbox_path()):
        what = f"the sandbox image was made from other packages than {toolbox_path()}: {told}"
        fix = f"delete {record.parent} and run the rule build_sandbox_image"
        print(f"warning: {record}: {what}; it is used as it is. To renew it, {fix}", file=sys.stderr)


def load_image(engine: DockerEngine) -> Image:
    """Loads the sandbox image into the engine if needed, and returns the image.

    Raises ImageMissing, SandboxLost, OSError.
    """
    image = recorded_image()
    try:
        find_image(engine, image)
        return image
    except ImageMissing:
        pass
    assert image.folder
    archive = image.folder.with_name(image.folder.name + ".tar")
    try:
        with archive.open("rb") as stream, engine.request(f"loading {archive}"):
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
