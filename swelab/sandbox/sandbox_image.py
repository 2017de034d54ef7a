"""The sandbox image: a small Debian with the toolbox. On engines, tasks without an image of their own use it.

The rule `build_sandbox_image` builds the image without an engine. The first process that needs the image
loads it into the engine.

The image has two forms: a folder for bubblewrap, and an archive that engines load. The digest of the image is
the hash of its configuration, which engines call the image's id. It contains the hash of the layer.
"""

import errno
import functools
import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from swelab.records import Fault, InputError, read_json, sha256_file, write_json
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.docker_images import find_image
from swelab.sandbox.image_root import DEFAULT_PATH
from swelab.sandbox.protocol import Image, ImageMissing
from swelab.sandbox.python_view import INSTALLERS, is_one_of
from swelab.sandbox.requirements import search_path, tool
from swelab.sandbox.rootfs import TOOLBOX, read_toolbox, toolbox_path

NAME = "swelab-sandbox:latest"
SUITE = "bookworm"  # this release has the toolbox's version of Python
PACKAGES = ("git", "patch", "procps", "python3")
_LEFT_OUT = ("doc", "info", "locale", "man")
_EPOCH = 1700000000
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


class BuildFailed(Fault):
    """The image could not be made."""


def build(folder: Path, toolbox: Path) -> dict[str, Any]:
    """Fills `folder` with root/, root.json (configuration), root.tar (archive) and image.json (the record).

    Returns the record {"name", "digest", "folder", "bytes", "packages"}. Raises BuildFailed, OSError,
    BackendMissing (no toolbox).
    """
    if os.geteuid() != 0:
        raise BuildFailed("the sandbox image is made as root: its files belong to root")
    folder.mkdir(parents=True, exist_ok=True)
    root, new = folder / "root", folder / "root.new"
    for old in (root, new):
        if old.exists():
            _run(["rm", "-rf", "--one-file-system", "--", str(old)])
    _install(new)
    _slim(new)
    _add_toolbox(new, toolbox)
    config = _pack(new, folder)
    new.rename(root)
    record = _record(folder, config)
    write_json(folder / "image.json", record)
    return record


def _record(folder: Path, config: bytes) -> dict[str, Any]:
    listed = _run(["dpkg-query", f"--admindir={folder}/root/var/lib/dpkg", "-W"])
    return {
        "name": NAME,
        "digest": "sha256:" + hashlib.sha256(config).hexdigest(),
        "folder": "root",
        "bytes": (folder / "root.tar").stat().st_size,
        "packages": dict(line.split("\t") for line in listed.splitlines()),
    }


def _install(root: Path) -> None:
    mmdebstrap = tool("mmdebstrap")
    if mmdebstrap is None:
        raise BuildFailed("no program `mmdebstrap` (Debian package mmdebstrap)")
    paths = [f"--dpkgopt=path-exclude=/usr/share/{name}/*" for name in _LEFT_OUT]
    recommends = '--aptopt=APT::Install-Recommends "false"'
    options = [*paths, recommends, "--variant=essential", f"--include={','.join(PACKAGES)}"]
    # mmdebstrap mounts the machine's /dev into the new root. In a separate mount namespace, the mount ends
    # with the process. Otherwise a later deletion of the folder could delete files in /dev.
    alone = ["unshare", "--mount", "--propagation=private", "--"]
    _run(
        [*alone, mmdebstrap, "--mode=root", "--quiet", *options, SUITE, str(root)],
        SOURCE_DATE_EPOCH=str(_EPOCH),
    )


def _slim(root: Path) -> None:
    """Removes devices, and files that programs recreate on demand.

    The engine and bubblewrap make the devices of a sandbox.
    """
    for pattern in ("dev/*", "var/cache/*", "var/log/*", "var/lib/apt/lists/*"):
        for path in root.glob(pattern):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()


def _add_toolbox(root: Path, toolbox: Path) -> None:
    """Copies the venv into the image and makes it use the image's interpreter."""
    contents = read_toolbox(toolbox)
    place = root / TOOLBOX.strip("/")
    (place / "bin").mkdir(parents=True)
    (place / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    for name, (content, mode) in contents.bin.items():
        if isinstance(content, str):
            (place / "bin" / name).symlink_to("/usr/bin/python3")
        else:
            (place / "bin" / name).write_bytes(content)
            (place / "bin" / name).chmod(mode)
    version = os.readlink(root / "usr/bin/python3")
    if not (contents.path / "lib" / version).is_dir():
        raise BuildFailed(f"the toolbox {contents.path} is not of {version}, the image's Python")
    left_out = shutil.ignore_patterns(*INSTALLERS, "*.pth", "__pycache__")
    shutil.copytree(contents.path / "lib", place / "lib", symlinks=True, ignore=left_out)
    _run(["chown", "-R", "0:0", str(place)])
    _run(["chmod", "-R", "u=rwX,go=rX", str(place)])
    (root / "testbed").mkdir()
    python = ["chroot", str(root), f"{TOOLBOX}/bin/python", "-m"]
    # `_pack` sets the time of all files. With the default mode, Python would then consider compiled files
    # outdated, and would compile pytest at each start, in 0.15 s.
    compiled = ["compileall", "-q", "-f", "--invalidation-mode", "unchecked-hash", f"{TOOLBOX}/lib"]
    _run([*python, *compiled], PYTHONHASHSEED="0")
    _run([*python, "pytest", "--version"], PYTHONDONTWRITEBYTECODE="1")


def _pack(root: Path, folder: Path) -> bytes:
    """Writes root.tar and root.json for the image in `root`. Returns the image's configuration."""
    layer = folder / "layer.tar"
    same = ["--sort=name", "--numeric-owner", f"--mtime=@{_EPOCH}"]
    _run(["tar", "-cf", str(layer), *same, "-C", str(root), "."])
    config = _configuration(sha256_file(layer))
    _write_archive(folder / "root.tar", config, layer)
    layer.unlink()
    (folder / "root.json").write_bytes(config)
    return config


def _configuration(layer: str) -> bytes:
    config = {
        "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "config": {"Env": [f"PATH={DEFAULT_PATH}"], "Cmd": ["/bin/bash"], "WorkingDir": "/testbed"},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
        "history": [{"created_by": "swelab build_sandbox_image"}],
    }
    return json.dumps(config, sort_keys=True).encode()


def _write_archive(path: Path, config: bytes, layer: Path) -> None:
    """Writes an archive that `docker load` reads."""
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": name, "RepoTags": [NAME], "Layers": ["layer.tar"]}]).encode()
    temporary = path.with_name(path.name + ".new")
    with tarfile.open(temporary, "w") as archive:
        for member, content in ((name, config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(member)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
        archive.add(layer, "layer.tar")
    temporary.rename(path)


def _run(command: list[str], **env: str) -> str:
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "PATH": search_path(), **env, "LC_ALL": "C"},
        check=False,
    )
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit {done.returncode}"]
        raise BuildFailed(f"{Path(command[0]).name}: {'; '.join(said[-3:])}")
    return done.stdout.decode(errors="replace")


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
