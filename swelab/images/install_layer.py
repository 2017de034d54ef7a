"""Runs install steps in a pulled image, with a network. The result is a separate root or image.

The result is made once for each pair of image and steps, and stored under the digest of the pair. Steps can
use this machine's network, and nothing else of the machine. Agents and tests run later, without a network.
"""

import hashlib
import os
import stat
import subprocess
from pathlib import Path
from typing import Any

from docker.errors import APIError, DockerException, ImageNotFound
from requests.exceptions import RequestException

from swelab.images.engine_images import EnginePuller
from swelab.images.errors import INSTALL_FAILED, EngineFailed
from swelab.images.image_store import ImageStore
from swelab.records import Record, read_json, shorten, write_json
from swelab.records.image_records import HeldImage
from swelab.sandbox.container_owner import labels
from swelab.sandbox.image_root import DEFAULT_PATH, declared_environment
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
    "". Raises EngineFailed, OSError (disk full).
    """
    digest = "sha256:" + hashlib.sha256(f"{image.digest}\0{script}".encode()).hexdigest()
    if isinstance(puller, ImageStore):
        code, output = _in_root(puller, image, script, digest)
        layer: Record = puller.record(digest) if code == 0 else {}
    elif isinstance(puller, EnginePuller):
        code, output, layer = _in_engine(puller, image, script, digest)
    else:
        return image | {"install": "the backends apptainer and remote run no install steps"}
    if code == 0:
        return image | layer | {"install": ""}
    return image | {"install": _why(code, output)}


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
        subprocess.run(["cp", "-a", "--reflink=auto", f"{before}/.", f"{scratch}/"], check=True)
        done = _bwrap(scratch, script, declared_environment(before))
        if done[0] == 0:
            _link_same(before, scratch)
            about = before.with_name(f"{before.name}.json")
            config = {"digest": digest}
            write_json(after.with_name(f"{after.name}.json"), {**read_json(about), **config})
            scratch.rename(after)
    return done


def _bwrap(root: Path, script: str, declared: dict[str, str]) -> tuple[int, str]:
    rights = ["--unshare-user", "--uid", "0", "--gid", "0"]
    if os.geteuid() == 0:
        rights = ["--cap-drop", "ALL", *(word for cap in _AS_ROOT for word in ("--cap-add", cap))]
    command = [tool("bwrap") or "bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", *rights]
    command += ["--die-with-parent", "--new-session", "--clearenv", "--bind", str(root), "/"]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm", "--chdir", "/"]
    for name in ("/etc/resolv.conf", "/etc/hosts"):
        if Path(name).exists() and not (root / name.lstrip("/")).is_symlink():
            (root / name.lstrip("/")).touch()
            command += ["--ro-bind", name, name]
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
    """Replaces each unchanged file of `after` by a hard link to the same file of `before`."""
    for folder, _, names in os.walk(after):
        for name in names:
            new = Path(folder, name)
            old = before / new.relative_to(after)
            try:
                facts, was = new.lstat(), old.lstat()
            except (FileNotFoundError, NotADirectoryError):
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
        code = api.wait(container, timeout=SECONDS)["StatusCode"]
        if code:
            return code, api.logs(container)[-_OUTPUT:].decode(errors="replace")
        repository, _, tag = name.partition(":")
        config = api.inspect_image(image)["Config"]
        api.commit(container, repository=repository, tag=tag, conf=config)
        return 0, ""
    finally:
        api.remove_container(container, force=True, v=True)
