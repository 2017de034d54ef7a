"""Uses an unpacked OCI image as the root file system of bubblewrap sandboxes.

We read the folder only by paths that cross no symlink, since links in an image may lead anywhere.
"""

import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from swelab.sandbox.protocol import SCRIPT_FOLDERS, SCRIPTS, WORKDIR, Image, ImageMissing
from swelab.sandbox.pulled_images import image_variables, inside
from swelab.sandbox.rootfs import ETC, HOME, TOOLBOX, gitconfig, own_mounts, top_level
from swelab.sandbox.scratch import ScratchFolder, copy_tree

DEFAULT_PATH = f"{TOOLBOX}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_OURS = ("dev", "etc", "home", "proc", "sys", "tmp", WORKDIR.strip("/"))
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


@dataclass(frozen=True)
class ImageRoot:
    """An image folder that is ready for sandboxes.

    etc: a copy of the image's /etc, with files that sandboxes need.
    """

    folder: Path
    workdir: Path | None  # path of the repository, below `folder`
    etc: ScratchFolder
    environment: dict[str, str]  # the image's variables; only commands get them
    linked: tuple[str, ...] = ()  # SCRIPT_FOLDERS, if sandboxes have links to them


def open_image(image: Image, base: Path) -> ImageRoot:
    """Prepares an unpacked image, with a copy of its /etc below `base`. Raises ImageMissing, OSError."""
    folder = image.folder
    if folder is None or not (real_folder(folder, "usr") and real_folder(folder, "etc")):
        raise ImageMissing(f"image {image.name} ({image.digest}) is not unpacked at {folder}")
    etc = ScratchFolder(base)
    try:
        etc.path.chmod(0o755)
        copy_tree(folder / "etc", etc.path, None)
        for name in ("hosts", "hostname", "nsswitch.conf"):
            _replace(etc.path / name, ETC[name])
        for name in ("passwd", "group"):  # each sandbox mounts its own files over these files
            _replace(etc.path / name, _text(etc.path / name))
        if not os.path.lexists(etc.path / "gitconfig"):
            _replace(etc.path / "gitconfig", gitconfig())
    except BaseException:
        etc.remove()
        raise
    linked = SCRIPT_FOLDERS if image.for_scripts else ()
    return ImageRoot(folder, _repository(folder, image.workdir), etc, declared_environment(folder), linked)


def declared_environment(folder: Path) -> dict[str, str]:
    """Returns the variables of the OCI configuration next to an unpacked image.

    Returns {} if there is no such file. Raises ImageMissing if the file is invalid.
    """
    path = folder.with_name(folder.name + ".json")
    try:
        return image_variables(json.loads(path.read_text()).get("config"))
    except FileNotFoundError:
        return {}
    except (ValueError, AttributeError, TypeError) as error:
        raise ImageMissing(f"{path}: expected the image's OCI configuration: {error}") from None


def write_accounts(root: ImageRoot, folder: Path, uid: int, gid: int) -> None:
    """Fills `folder` with etc/passwd and etc/group for one sandbox, and empty testbed/, tmp/ and home/."""
    for name in ("etc", "testbed", "tmp", "home"):
        (folder / name).mkdir()
        (folder / name).chmod(0o755)
    for name, line in (
        ("passwd", f"agent:x:{uid}:{gid}:agent:{HOME}:/bin/bash\n"),
        ("group", f"agent:x:{gid}:\n"),
    ):
        _replace(folder / "etc" / name, line + (root.etc.path / name).read_text(errors="replace"))


def image_mounts(root: ImageRoot, folder: Path, shm_bytes: int) -> list[str]:
    """Returns bwrap's arguments that make the image the root.

    `folder` must contain the files of `write_accounts`.
    """
    arguments: list[str] = []
    for path in sorted(root.folder.iterdir()):
        if path.name not in (*_OURS, *root.linked):
            arguments += top_level(path, f"/{path.name}")
    for name in root.linked:
        arguments += ["--symlink", f"{SCRIPTS}/{name}", f"/{name}"]
    arguments += ["--ro-bind", str(root.etc.path), "/etc"]
    for name in ("passwd", "group"):
        arguments += ["--ro-bind", str(folder / "etc" / name), f"/etc/{name}"]
    arguments += ["--perms", "0755", "--dir", "/home", "--perms", "0755", "--dir", HOME]
    if real_folder(root.folder, "home"):
        for path in sorted((root.folder / "home").iterdir()):
            if f"/home/{path.name}" != HOME:
                arguments += top_level(path, f"/home/{path.name}")
    arguments += own_mounts(folder, shm_bytes)
    if root.workdir and (own := f"/{root.workdir.relative_to(root.folder)}") and not is_covered(own):
        arguments += ["--bind", str(folder / "testbed"), own]  # hides the image's own files
    return [*arguments, "--remount-ro", "/"]


def is_covered(path: str) -> bool:
    """Returns whether `path` is in a folder that each sandbox replaces by its own folder."""
    private = (WORKDIR, "/tmp", HOME, "/etc", "/dev", "/proc", "/sys")
    return any(PurePosixPath(path).is_relative_to(place) for place in private)


def _repository(folder: Path, workdir: str) -> Path | None:
    found = inside(folder, workdir)
    if found in (folder, folder / "home"):  # bwrap cannot mount over these two folders
        return None
    return found if found and found.is_dir() and not found.is_symlink() else None


def real_folder(folder: Path, path: str) -> Path | None:
    """Returns the folder at `path` in an image, or None if it is missing or the path crosses a symlink."""
    here = folder
    for part in (p for p in PurePosixPath(path).parts if p != "/"):
        here = here / part
        try:
            if part == ".." or not stat.S_ISDIR(here.lstat().st_mode):
                return None
        except OSError:
            return None
    return here


def _text(path: Path) -> str:
    """Returns the text of a regular file, or "" for anything else."""
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return file.read(1 << 20).decode(errors="replace")


def _replace(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    with path.open("x") as file:
        file.write(text)
    path.chmod(0o644)
