"""One container of a docker sandbox. It runs one command at a time.

Implements `put` and `get` of a docker sandbox by small shell scripts.

The scripts run in the sandbox with the rights of its user, so they can reach only files that a command can
reach. They refuse symlinks, and check a file again after opening it. So a command that replaces the file in
the meantime gains nothing.
"""

import errno
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from swelab.sandbox import isolation
from swelab.sandbox.bounded_output import BoundedOutput
from swelab.sandbox.container_owner import labels
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.docker_images import NEUTRAL, UID, PreparedImage
from swelab.sandbox.docker_protocol import Disconnected, Overdue, RequestEnd, Talk
from swelab.sandbox.live_session import LiveSession
from swelab.sandbox.memory_group import drop_loaded
from swelab.sandbox.protocol import WORKDIR, EngineDown, Limits, PathRefused, SandboxLost
from swelab.sandbox.resource_limits import INODE_BYTES
from swelab.sandbox.rootfs import HOME
from swelab.sandbox.safe_files import locate

_REFUSED, _ABSENT, _FULL = 41, 42, 43
# Arguments: /testbed or /tmp, each folder of the path below it, and the file's name.
_WALK = r"""
LC_ALL=C
umask 022
end() { cat >/dev/null; echo "$2"; exit "$1"; }
said() { case $1 in *"No space left"*) end 43 "$1" ;; *) end 41 "$1" ;; esac; }
here=$1
shift
cd -P -- "$here" && [[ $PWD == "$here" ]] || end 41 "no such folder"
while (($# > 1)); do
    if [[ ! -e ./$1 && ! -L ./$1 ]]; then
        MISSING
    fi
    [[ ! -L ./$1 && -d ./$1 ]] || end 41 "$1 is a link or no folder"
    here+=/$1
    cd -P -- "./$1" 2>/dev/null && [[ $PWD == "$here" ]] || end 41 "$1 is a link or cannot be opened"
    shift
done
[[ ! -L ./$1 ]] || end 41 "it is a link"
[[ ! -e ./$1 || -f ./$1 ]] || end 41 "it is not a regular file"
"""
_PUT = (
    _WALK.replace("MISSING", 'why=$(mkdir -m 755 -- "./$1" 2>&1) || [[ -d ./$1 ]] || said "$why"')
    + r"""
mode=644
[[ ! -e ./$1 ]] || mode=$(stat -c %a -- "./$1")
new=.swelab-$$-$RANDOM$RANDOM$RANDOM
set -C
: 2>/dev/null >"./$new" || said "$(: 2>&1 >"./$new")"
set +C
why=$(cat 2>&1 >"./$new" && chmod "$mode" "./$new" 2>&1 && mv -fT -- "./$new" "./$1" 2>&1) && exit 0
rm -f -- "./$new"
said "$why"
"""
)
_GET = (
    "most=$1\nshift\n"
    + _WALK.replace("MISSING", 'end 42 ""')
    + r"""
[[ -e ./$1 ]] || end 42 ""
exec 4<"./$1" || end 41 "it cannot be opened"
[[ ! -L ./$1 && ./$1 -ef /proc/self/fd/4 ]] || end 41 "it was replaced meanwhile"
exec head -c "$most" <&4
"""
)


def put_words(path: str) -> list[bytes]:
    """Returns the arguments of a `bash -c` that writes its stdin to the file `path`. Raises PathRefused."""
    return [_PUT.encode(), b"bash", *_parts(path)]


def get_words(path: str, max_bytes: int) -> list[bytes]:
    """Returns the arguments of a `bash -c` that prints up to `max_bytes` + 1 bytes of a file.

    Raises PathRefused.
    """
    return [_GET.encode(), b"bash", str(max_bytes + 1).encode(), *_parts(path)]


def check_ending(path: str, code: int, message: bytes) -> None:
    """Raises an error if a script's exit code is not 0. message: the script's output.

    Raises PathRefused, FileNotFoundError, OSError (disk full), SandboxLost.
    """
    if not code:
        return
    text = message.decode(errors="replace").strip().splitlines()
    why = text[-1] if text else f"exit {code}"
    if code == _REFUSED:
        raise PathRefused(f"{path!r}: {why}")
    if code == _ABSENT:
        raise FileNotFoundError(errno.ENOENT, "no such file in the sandbox", path)
    if code == _FULL:
        raise OSError(errno.ENOSPC, "No space left on device in the sandbox", path)
    raise SandboxLost(f"the sandbox could not handle {path!r}: {why}")


def _parts(path: str) -> list[bytes]:
    folder, parts = locate(path)
    root = {"testbed": b"/testbed", "tmp": b"/tmp"}[folder]
    return [root, *(part.encode("utf-8", "surrogateescape") for part in parts)]


FOLDERS = (WORKDIR, "/tmp", HOME)
_SCRIPT = Path(__file__).with_name("docker_init.sh").read_text()
_LANE = "swelab.lane"
_OWN_PROCESSES = 4  # processes of docker_init.sh, which count towards the container's limit
_OF_A_SESSION = 2  # processes of docker_init.sh that forward the input of a session
_LATE_SECONDS = 15.0


class Worker:
    """A container that starts when this object is created. Raises SandboxLost, ImageMissing, OSError."""

    def __init__(
        self,
        engine: DockerEngine,
        image: PreparedImage,
        profile: str,
        limits: Limits,
        volumes: dict[str, str],
        start: str = "",
        forgets: bool = False,
    ) -> None:
        """Starts the container.

        volumes: maps each of FOLDERS to the volume that the sandbox's containers share. If it is empty, new
        volumes are made. start: folder in which the first command starts; see docker_init.sh.
        """
        self.engine = engine
        self._memory, self._processes = _memory(limits), limits.processes
        self._files = _memory(limits) - limits.memory_bytes
        self._name = secrets.token_hex(16)
        self._forgets = forgets
        mounts = _mounts(limits, volumes, labels() | {_LANE: self._name})
        self.id = _create(engine, image, _settings(start), _host(limits, profile) | {"Mounts": mounts})
        try:
            self._wire = engine.attach(self.id)
            self._talk = Talk(self._wire)
            engine.start(self.id)
        except BaseException:
            engine.remove(self.id)
            raise

    def ask(
        self,
        words: Sequence[bytes],
        limits: Limits,
        output: BoundedOutput,
        given: Iterable[bytes] | None = None,
    ) -> RequestEnd:
        """Runs the inner shell with `words`. On return, every process that the shell started has ended.

        If no answer arrives in time, the container is removed, and the result has the limit "wall". After
        that, the container cannot be used. Raises SandboxLost, EngineDown.
        """
        return self._answer(limits, lambda due: self._talk.ask(words, limits, output, due, given))

    def live(self, words: Sequence[bytes], limits: Limits, session: LiveSession) -> RequestEnd:
        """Runs the inner shell for a session, as the last command of the container.

        Raises the errors of `ask`.
        """
        most = replace(limits, processes=limits.processes + _OF_A_SESSION)

        def on_open() -> None:
            session.open(self._wire.socket, self.hang_up)

        return self._answer(most, lambda due: self._talk.live(words, limits, session.heard, due, on_open))

    def _answer(self, limits: Limits, ask: Callable[[float], RequestEnd]) -> RequestEnd:
        self._allow(limits)
        try:
            return ask(time.monotonic() + limits.wall_seconds + _LATE_SECONDS)
        except Overdue:
            self._forget()
            self.engine.remove(self.id)
            return RequestEnd(0, "wall")
        except Disconnected as error:
            raise self._lost_error(str(error)) from None

    def _allow(self, limits: Limits) -> None:
        memory, processes = max(self._memory, limits.memory_bytes + self._files), limits.processes
        if (memory, processes) != (self._memory, self._processes):
            self.engine.update(self.id, memory, processes + _OWN_PROCESSES)
            self._memory, self._processes = memory, processes

    def _lost_error(self, message: str) -> SandboxLost:
        if not self.engine.answers():
            return EngineDown(f"the engine at {self.engine.address} went away while a command ran")
        return SandboxLost("the sandbox was killed from outside" + (f": {message}" if message else ""))

    def volumes(self) -> dict[str, str]:
        """Maps each folder to the name of its volume."""
        with self.engine.request("looking at a container"):
            mounts = self.engine.api.inspect_container(self.id)["Mounts"]
        return {mount["Destination"]: mount["Name"] for mount in mounts if mount["Destination"] in FOLDERS}

    def _forget(self) -> None:
        """Drops the page cache that the container's commands filled, if the engine runs on this machine."""
        if self._forgets:
            with suppress(SandboxLost), self.engine.request("looking at a container"):
                pid = self.engine.api.inspect_container(self.id)["State"]["Pid"]
                drop_loaded(pid, self.id)

    def hang_up(self) -> None:
        """Closes the connection, so that callers stop waiting for an answer."""
        self._wire.close()

    def remove(self) -> None:
        """Ends and removes the container. Raises EngineDown."""
        try:
            self._forget()
            # if another process removed the container, it may have left the volumes
            if not self.engine.remove(self.id):
                self.engine.remove_volumes(*self.engine.volumes(f"{_LANE}={self._name}"))
        finally:
            self._wire.close()


def _memory(limits: Limits) -> int:
    """Returns the container's memory limit in bytes. It includes the files in FOLDERS and /dev/shm."""
    return limits.memory_bytes + limits.disk_bytes + limits.shm_bytes


def _settings(start: str) -> dict[str, Any]:
    return {
        "Entrypoint": ["/bin/bash", "--norc", "--noprofile", "-c", _SCRIPT],
        "Cmd": [],
        "User": "0:0",
        "WorkingDir": "/",
        "Hostname": "sandbox",
        "Env": [f"SANDBOX_UID={UID}", f"SANDBOX_START={start}", *NEUTRAL],
        "OpenStdin": True,
        "StdinOnce": True,  # stdin closes when we close the connection, and then the container ends
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Healthcheck": {"Test": ["NONE"]},
        "Labels": labels(),
    }


def _host(limits: Limits, profile: str) -> dict[str, Any]:
    # The first process switches to the sandbox's user, and ends that user's processes.
    parted = isolation.docker("SETUID", "SETGID", "SETPCAP", "KILL")
    return parted | {
        "AutoRemove": True,
        "IpcMode": "private",
        "ReadonlyRootfs": True,
        "SecurityOpt": [*parted["SecurityOpt"], f"seccomp={profile}"],
        "Memory": _memory(limits),
        "MemorySwap": _memory(limits),
        "PidsLimit": limits.processes + _OWN_PROCESSES,
        "ShmSize": limits.shm_bytes,
        "LogConfig": {"Type": "none"},
    }


def _mounts(limits: Limits, volumes: dict[str, str], marks: dict[str, str]) -> list[dict[str, Any]]:
    """Returns the mounts of FOLDERS. Each is a file system in memory.

    It is a little larger than the disk limit. Otherwise a command could not exceed the limit.
    """
    size = limits.disk_bytes + limits.disk_bytes // 16 + (1 << 20)
    inodes = f"nr_inodes={size // INODE_BYTES}"
    options = {"type": "tmpfs", "device": "tmpfs", "o": f"size={size},{inodes},mode=755,uid={UID},gid={UID}"}
    own = {"NoCopy": True, "Labels": marks, "DriverConfig": {"Name": "local", "Options": options}}
    return [
        {"Type": "volume", "Target": folder, "Source": volumes[folder], "VolumeOptions": {"NoCopy": True}}
        if volumes
        else {"Type": "volume", "Target": folder, "VolumeOptions": own}
        for folder in FOLDERS
    ]


def _create(
    engine: DockerEngine, image: PreparedImage, settings: dict[str, Any], host: dict[str, Any]
) -> str:
    """Creates a container and returns its id. The container uses the hosts file of the prepared image.

    For each container with a network, the engine writes a hosts file in 0.1 s of CPU time, even with the
    network "none". So we disable the network (NetworkDisabled). The container still has its own network
    namespace with a loopback device. If the engine cannot mount the image's file, the container gets the
    network "none" instead.
    """
    if image.hosts:
        names = {"Type": "bind", "Source": image.hosts, "Target": "/etc/hosts", "ReadOnly": True}
        with_names = host | {"Mounts": [*host["Mounts"], names]}
        try:
            return engine.create(image.id, settings | {"NetworkDisabled": True}, with_names)
        except SandboxLost as error:
            if type(error) is not SandboxLost:
                raise
        with engine.request("looking at a prepared image"):
            engine.api.inspect_image(image.id)  # raises ImageMissing if the image was removed
    return engine.create(image.id, settings, host)


def pieces(data: bytes, size: int = 1 << 20) -> Iterator[bytes]:
    """Splits bytes into pieces of at most `size` bytes."""
    for start in range(0, len(data), size):
        yield data[start : start + size]
