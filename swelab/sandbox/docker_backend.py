"""Sandboxes of a container engine.

A sandbox is a container whose first process (docker_init.sh) runs one command after another, each as an
unprivileged user. So only a container's start costs the engine time. If a sandbox runs several commands at
once, each has a container, and these share folders. Limits are control groups. The root file system is an
image. All objects that we make in the engine have our label.
"""

import errno
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from swelab.sandbox import reap, sandbox_image
from swelab.sandbox.bounded_output import BoundedOutput
from swelab.sandbox.bwrap_process import become_words, process_limits, refusal, refusal_of
from swelab.sandbox.docker_container import Worker, check_ending, get_words, pieces, put_words
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.docker_images import EngineImages, PreparedImage
from swelab.sandbox.docker_protocol import RequestEnd
from swelab.sandbox.image_root import DEFAULT_PATH
from swelab.sandbox.live_session import LiveSession
from swelab.sandbox.protocol import (
    DEFAULT_LIMITS,
    TIMEOUT_CODE,
    Closing,
    ExecResult,
    Image,
    ImageMissing,
    Limits,
    PathRefused,
    SandboxLost,
)
from swelab.sandbox.rootfs import ENVIRONMENT, HOME
from swelab.sandbox.seccomp import engine_profile
from swelab.sandbox.tree_tar import archive

Source = Literal["repository", "empty"]
REPOSITORY: Source = "repository"  # the image's repository
EMPTY: Source = "empty"

_CODES = {"wall": TIMEOUT_CODE, "cpu": 128 + 24, "memory": 128 + 9, "disk": 128 + 9}
_FILE_CODE, _CPU_CODE = 128 + 25, 128 + 24
_OURS = Limits(wall_seconds=600, cpu_seconds=600)  # for commands that set up a sandbox
_SAID_BYTES = 4096
_FULL = ("No space left on device", "Wrote only")  # parts of error messages of tar and cp
_REPOSITORY = "/.swelab/repository"  # a folder that docker_prepare.sh makes
_COPY = b"[[ -d testbed ]] || exit 3; exec cp -dR --preserve=mode,timestamps -- testbed/. /testbed"
_UNPACK = b"exec tar -xpf - -C /testbed --no-same-owner --delay-directory-restore"
_log = logging.getLogger(__name__)


class DockerSandbox(Closing):
    """See `protocol.Sandbox`."""

    def __init__(
        self,
        backend: "DockerBackend",
        image: PreparedImage,
        source: Path | Source,
        limits: Limits,
        forgets: bool = False,
    ) -> None:
        self._backend = backend
        self._forgets = forgets
        self._image = image
        self._limits = limits
        self._closed = False
        self._running = 0
        self._state = threading.Condition()
        self._environment = ENVIRONMENT | {"PATH": DEFAULT_PATH} | image.environment | {"HOME": HOME}
        self._lanes = [self._new_lane({}, _REPOSITORY if source == REPOSITORY else "")]
        self._free = list(self._lanes)
        try:
            if isinstance(source, Path):
                with archive(source) as chunks:
                    self.fill(chunks)
            elif source == REPOSITORY:
                self._copy()
        except BaseException:
            self.close()
            raise

    def _new_lane(self, volumes: dict[str, str], start: str = "") -> Worker:
        backend = self._backend
        options = (self._limits, volumes, start, self._forgets)
        return Worker(backend.engine, self._image, backend.profile, *options)

    def _copy(self) -> None:
        answer, said = self._run([_COPY, b"bash"])
        if answer.code == 3:
            raise ImageMissing("the image has no such folder to copy to /testbed")
        _check_filled(answer, said)

    def fill(self, chunks: Iterator[bytes]) -> None:
        """Unpacks a tar stream to /testbed. Raises SandboxLost. Raises OSError (disk full, no tar)."""
        _check_filled(*self._run([_UNPACK, b"bash"], chunks))

    def exec(
        self, command: str, *, env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> ExecResult:
        """Runs `bash -c command` in /testbed; see the protocol. Raises SandboxLost, ValueError (env)."""
        limits = limits or self._limits
        if (result := refusal_of(command, env or {})) is not None:
            return result
        words = become_words(command, {**self._environment, **(env or {})}, process_limits(limits))
        kept = BoundedOutput(limits.output_bytes)
        with self._lane() as lane:
            started = time.monotonic()
            return _result(lane.ask(words, limits, kept), kept, started)

    def session(
        self, command: str, *, env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> LiveSession:
        """Starts `bash -c command` as an interactive session in a separate container; see the protocol."""
        limits = limits or self._limits
        if reason := refusal(command, env or {}):
            raise ValueError(reason)
        variables = {**self._environment, **(env or {})}
        words = become_words(command, variables, process_limits(limits), live=True)
        return LiveSession(lambda session: self._live(words, limits, session), limits.output_bytes)

    def _live(self, words: list[bytes], limits: Limits, session: LiveSession) -> ExecResult:
        with self._lane(alone=True) as lane:
            started = time.monotonic()
            try:
                return _result(lane.live(words, limits, session), session.heard, started)
            finally:
                session.shut()

    def put(self, path: str, data: bytes) -> None:
        """Writes a file; see `protocol.Sandbox.put`."""
        answer, said = self._run(put_words(path), pieces(data))
        check_ending(path, answer.code or bool(answer.limit), said)

    def get(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """Reads a regular file; see `protocol.Sandbox.get`."""
        answer, data = self._run(get_words(path, max_bytes), most=max_bytes + _SAID_BYTES)
        check_ending(path, answer.code or bool(answer.limit), data)
        if len(data) > max_bytes:
            raise PathRefused(f"{path!r} has more than {max_bytes} bytes")
        return data

    def _run(
        self, words: Sequence[bytes], given: Iterator[bytes] | None = None, most: int = _SAID_BYTES
    ) -> tuple[RequestEnd, bytes]:
        output = BoundedOutput(most)
        limits = Limits(**{**vars(self._limits), **_OWN_LIMITS})
        with self._lane() as lane:
            answer = lane.ask(words, limits, output, given)
        return answer, output.value()

    @contextmanager
    def _lane(self, alone: bool = False) -> Iterator[Worker]:
        """Yields a free container, or a new container if none is free. Raises SandboxLost. alone: use a new
        container, and remove it after the block."""
        with self._state:
            if self._closed:
                raise SandboxLost("the sandbox is closed")
            self._running += 1
            lane = self._free.pop() if self._free and not alone else None
        try:
            if lane is None:
                lane = self._new_lane(self._lanes[0].volumes())
                with self._state:
                    self._lanes.append(lane)
                    if self._closed:
                        lane.hang_up()
            yield lane
        except SandboxLost:
            if self._closed:
                raise SandboxLost("the sandbox was closed while a command ran") from None
            raise
        finally:
            if alone and lane is not None:
                self._backend.discard(lane)
            with self._state:
                if alone and lane is not None:
                    self._lanes.remove(lane)
                elif lane is not None:
                    self._free.append(lane)
                self._running -= 1
                self._state.notify_all()

    def containers(self) -> list[str]:
        """Returns the ids of the sandbox's containers, in the order of their start."""
        return [lane.id for lane in self._lanes]

    def close(self) -> None:
        """Ends all commands and removes the containers with their folders."""
        with self._state:
            self._closed = True
            for lane in self._lanes if self._running else ():
                lane.hang_up()
            self._state.wait_for(lambda: self._running == 0)
            for lane in reversed(self._lanes):
                self._backend.discard(lane)
            self._lanes.clear()


def _result(answer: RequestEnd, output: BoundedOutput, started: float) -> ExecResult:
    code, limit = answer.code, answer.limit
    if limit:
        code = _CODES[limit]
    else:
        limit = {_CPU_CODE: "cpu", _FILE_CODE: "file"}.get(code, "output" if output.dropped else "")
    seconds = time.monotonic() - started
    return ExecResult(output.value(), code, limit == "wall", output.dropped, limit, seconds)


def _check_filled(answer: RequestEnd, output: bytes) -> None:
    if not (answer.code or answer.limit):
        return
    said = output.decode(errors="replace").strip()
    full = answer.limit == "disk" or any(word in said for word in _FULL)
    code = errno.ENOSPC if full else errno.EIO
    why = os.strerror(code) if full else said.partition("\n")[0] or answer.limit or f"exit {answer.code}"
    raise OSError(code, f"copying to the sandbox failed: {why}")


# There is no disk limit here. A full file system is an error of the command that copies files.
_OWN_LIMITS = {"wall_seconds": _OURS.wall_seconds, "cpu_seconds": _OURS.cpu_seconds, "disk_bytes": 1 << 50}


class DockerBackend:
    """See `protocol.Backend`. The constructor removes leftovers of killed processes from the engine."""

    name = "docker"

    def __init__(self) -> None:
        self._engine = DockerEngine()
        self._process = os.getpid()
        self._images = EngineImages()
        self._spare: list[Worker] = []
        self._lock = threading.Lock()
        self.profile = json.dumps(engine_profile())
        reap.reap(self._engine)

    @property
    def engine(self) -> DockerEngine:
        """The connection to the engine. A forked process opens its own connection."""
        with self._lock:
            if self._process != os.getpid():
                self._engine, self._process, self._spare = DockerEngine(), os.getpid(), []
            return self._engine

    def start(
        self,
        tree: Path | None,
        *,
        image: Image | None = None,
        limits: Limits = DEFAULT_LIMITS,
        forgets: bool = False,
    ) -> DockerSandbox:
        """Starts a fresh sandbox; see `protocol.Backend.start`. The default image is the sandbox image."""
        if tree is None and image is None:
            raise ValueError("a sandbox needs a tree or an image")
        return self._start(Path(tree) if tree else REPOSITORY, image, limits, forgets)

    def start_empty(
        self, *, image: Image | None = None, limits: Limits = DEFAULT_LIMITS, forgets: bool = False
    ) -> DockerSandbox:
        """Starts a sandbox with an empty /testbed, for `DockerSandbox.fill`. Raises the errors of `start`."""
        return self._start(EMPTY, image, limits, forgets)

    def _start(
        self, source: Path | Source, image: Image | None, limits: Limits, forgets: bool
    ) -> DockerSandbox:
        self.clear()
        engine = self.engine
        image = image or sandbox_image.load_image(engine)
        prepared = self._images.prepare(engine, image)
        try:
            return DockerSandbox(self, prepared, source, limits, forgets)
        except ImageMissing:  # the prepared image was removed since its last use: prepare it again
            self._images.forget(image)
            return DockerSandbox(self, self._images.prepare(engine, image), source, limits, forgets)

    def discard(self, lane: Worker) -> None:
        """Removes a container. If the engine does not respond now, the container is removed later."""
        try:
            lane.remove()
        except SandboxLost as error:
            _log.warning("a container could not be removed yet: %s", error)
            with self._lock:
                self._spare.append(lane)

    def clear(self) -> None:
        """Removes the containers that could not be removed when their sandbox was closed."""
        with self._lock:
            left, self._spare = self._spare, []
        for lane in left:
            self.discard(lane)
