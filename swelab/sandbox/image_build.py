"""Builds the sandbox image without an engine or a registry: a small Debian that contains the toolbox.

The image has two forms: a folder for bubblewrap, and an archive that engines load. The digest of the image is
the hash of its configuration. Engines call this hash the image's id. The configuration contains the hash of
the layer.
"""

import hashlib
import io
import json
import os
import platform
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

from swelab.records import Fault, sha256_file, write_json
from swelab.sandbox.image_root import DEFAULT_PATH
from swelab.sandbox.python_view import INSTALLERS
from swelab.sandbox.requirements import search_path, tool
from swelab.sandbox.rootfs import TOOLBOX, read_toolbox

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
