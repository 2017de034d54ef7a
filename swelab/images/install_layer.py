"""Runs install steps in a pulled image, with a network. The result is a separate root or image.

The result is made once for each pair of image and steps, and stored under the digest of the pair. Steps can
use this machine's network, and nothing else of the machine. Agents and tests run later, without a network.
"""

import errno
import hashlib
import os
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import RequestException

from swelab.images.engine_images import EnginePuller
from swelab.images.errors import INSTALL_FAILED, EngineFailed, ImageError, NoRoom
from swelab.images.image_store import ImageStore
from swelab.records import Record, read_json, shorten, write_json
from swelab.records.image_records import HeldImage
from swelab.sandbox.container_owner import labels
from swelab.sandbox.image_root import DEFAULT_PATH, declared_environment, real_folder
from swelab.sandbox.pulled_images import inside
from swelab.sandbox.requirements import tool

SECONDS = 1800
_OUTPUT = 64 << 10
_PASSED_ON = ("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
_PIP = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_TRUSTED_HOST")
_AS_ROOT = ("CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_SETGID", "CAP_SETUID")


def install_in_image(puller: object, image: HeldImage, script: str) -> HeldImage:
    """Runs `script` in an image and returns the new record of the image.

    If a step fails, the script prints a line (INSTALL_FAILED, exit code, step) and ends. In that case the
    pulled image is not changed, and the field `install` of its record has the reason. Otherwise `install` is
    "". Raises EngineFailed, NoRoom, ImageError.
    """
    digest = "sha256:" + hashlib.sha256(f"{image.digest}\0{script}".encode()).hexdigest()
    if isinstance(puller, ImageStore):
        try:
            code, output = _in_root(puller, image, script, digest)
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise _no_room(puller, image) from None
            raise
        layer: Record = puller.record(digest) if code == 0 else {}
    elif isinstance(puller, EnginePuller):
        code, output, layer = _in_engine(puller, image, script, digest)
    else:
        return image | {"install": "the backends apptainer and remote run no install steps"}
    if code == 0:
        return image | layer | {"install": ""}
    return image | {"install": _why(code, output)}


def _no_room(store: ImageStore, image: HeldImage) -> NoRoom:
    return NoRoom(f"install steps of image {image.digest}: the disk of {store.folder} became full")


def _why(code: int, output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    named = next((line for line in reversed(lines) if line.startswith(f"{INSTALL_FAILED} ")), "")
    last = next((line for line in reversed(lines) if not line.startswith(INSTALL_FAILED)), "no output")
    for line in lines:
        if line.startswith(("ERROR:", "error:")):
            last = line
            break
    if not named:
        return f"the install steps end with exit code {code}: {shorten(last)}"
    _, status, step = named.split(" ", 2)
    return f"the install step `{shorten(step)}` fails (exit code {status}): {shorten(last)}"


def _environment() -> dict[str, str]:
    """Returns the environment variables of the steps.

    They have this machine's proxies and pip settings, and disable git's owner checks.
    """
    git = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"}
    ours = {name: os.environ[name] for name in (*_PASSED_ON, *_PIP) if os.environ.get(name)}
    return {"HOME": "/root", "PIP_DISABLE_PIP_VERSION_CHECK": "1", **git, **ours}


def _in_root(store: ImageStore, image: HeldImage, script: str, digest: str) -> tuple[int, str]:
    """Runs the steps on a copy of an unpacked root. Replaces unchanged files by hard links to that root."""
    before, after = store.folder / image.folder, store.root(digest)
    with store.alone(digest), store.fresh("roots") as scratch:
        if store.holds(digest):
            return 0, ""
        _copy(store, image, scratch)
        done = _bwrap(scratch, script, declared_environment(before))
        if done[0] == 0:
            _link_same(before, scratch)
            about = before.with_name(f"{before.name}.json")
            config = {"digest": digest}
            write_json(after.with_name(f"{after.name}.json"), {**read_json(about), **config})
            scratch.rename(after)
    return done


def _copy(store: ImageStore, image: HeldImage, target: Path) -> None:
    """Copies an unpacked root to the folder `target`. Raises NoRoom, ImageError."""
    command = ["cp", "-a", "--reflink=auto", f"{store.folder / image.folder}/.", f"{target}/"]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, env={**os.environ, "LC_ALL": "C"}
    )
    if done.returncode == 0:
        return
    text = done.stderr.decode(errors="replace")
    if os.strerror(errno.ENOSPC) in text or os.strerror(errno.EDQUOT) in text:
        raise _no_room(store, image)
    raise ImageError(f"install steps of image {image.digest}: the root was not copied: {shorten(text)}")


def _network_files(root: Path) -> list[str]:
    """Returns bwrap's arguments that mount this machine's resolv.conf and hosts over the root's own files.

    Makes a missing file of the root, to mount over. Symlinks of the root do not lead out of it.
    """
    etc, arguments = inside(root, "/etc"), list[str]()
    if etc is None or not etc.is_dir():
        return arguments
    for name in ("resolv.conf", "hosts"):
        place = etc / name
        if not Path("/etc", name).exists() or place.is_symlink():
            continue
        if not os.path.lexists(place):
            place.touch(exist_ok=False)
        arguments += ["--ro-bind", f"/etc/{name}", f"/{place.relative_to(root)}"]
    return arguments


def _bwrap(root: Path, script: str, declared: dict[str, str]) -> tuple[int, str]:
    rights = ["--unshare-user", "--uid", "0", "--gid", "0"]
    if os.geteuid() == 0:
        rights = ["--cap-drop", "ALL", *(word for cap in _AS_ROOT for word in ("--cap-add", cap))]
    command = [tool("bwrap") or "bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", *rights]
    command += ["--die-with-parent", "--new-session", "--clearenv", "--bind", str(root), "/"]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm", "--chdir", "/"]
    command += _network_files(root)
    for name, value in {"PATH": DEFAULT_PATH, **declared, **_environment()}.items():
        command += ["--setenv", name, value]
    command += ["/bin/bash", "--norc", "-c", script]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
        )
    except subprocess.TimeoutExpired as error:
        return 124, (error.stdout or b"")[-_OUTPUT:].decode(errors="replace")
    return done.returncode, done.stdout[-_OUTPUT:].decode(errors="replace")


def _link_same(before: Path, after: Path) -> None:
    """Replaces each unchanged file of `after` by a hard link to the same file of `before`.

    Only real folders of `before` count, since its symlinks may lead anywhere.
    """
    for folder, _, names in os.walk(after):
        beside = real_folder(before, str(Path(folder).relative_to(after)))
        if beside is None:
            continue
        for name in names:
            new, old = Path(folder, name), beside / name
            try:
                facts, was = new.lstat(), old.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISREG(facts.st_mode) and _same(facts) == _same(was):
                new.unlink()
                os.link(old, new)


def _same(facts: os.stat_result) -> tuple[int, ...]:
    return facts.st_mode, facts.st_size, facts.st_mtime_ns, facts.st_uid, facts.st_gid


def _in_engine(engine: EnginePuller, image: HeldImage, script: str, digest: str) -> tuple[int, str, Record]:
    """Runs the steps in a container of the image, and commits the result as an image."""
    api: Any = engine.client.api
    name = f"swelab-installed:{digest[7:39]}"
    try:
        try:
            image_data = api.inspect_image(name)
        except ImageNotFound:
            original = _by_digest(api, image.digest)
            code, output = _run_in_container(api, original["Id"], script, name)
            if code:
                return code, output, {}
            image_data = api.inspect_image(name)
    except (APIError, DockerException, RequestException) as error:
        raise EngineFailed(f"install steps of image {image.digest}: {shorten(str(error))}") from None
    return 0, "", {"digest": image_data["Id"], "bytes": image_data["Size"]}


def _by_digest(api: Any, digest: str) -> Record:
    for image in api.images(all=True):
        if image["Id"] == digest or any(each.endswith(f"@{digest}") for each in image["RepoDigests"] or []):
            return dict(image)
    raise ImageNotFound(f"no image {digest}")


def _wait(api: Any, container: Any) -> int:
    """Returns the exit code of a container, or 124 if it runs for more than SECONDS."""
    start = time.monotonic()
    try:
        return int(api.wait(container, timeout=SECONDS)["StatusCode"])
    except RequestException:  # the SDK has several kinds for a timeout
        if time.monotonic() - start < SECONDS:
            raise
        return 124


def _run_in_container(api: Any, image: str, script: str, name: str) -> tuple[int, str]:
    host = api.create_host_config(network_mode="host", cap_drop=["ALL"], cap_add=list(_AS_ROOT))
    environment = [f"{key}={value}" for key, value in _environment().items()]
    container = api.create_container(
        image,
        entrypoint=["/bin/bash", "--norc", "-c", script],
        command=[],
        user="0:0",
        environment=environment,
        host_config=host,
        labels=labels(),
    )
    try:
        api.start(container)
        code = _wait(api, container)
        if code:
            return code, api.logs(container)[-_OUTPUT:].decode(errors="replace")
        repository, _, tag = name.partition(":")
        config = api.inspect_image(image)["Config"]
        api.commit(container, repository=repository, tag=tag, conf=config)
        return 0, ""
    finally:
        api.remove_container(container, force=True, v=True)
