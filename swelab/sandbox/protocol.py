"""The types of a sandbox: a private copy of a source tree in which shell commands run under limits.

Grading and scaffolds use only these types. A setting selects the backend that implements them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from swelab.records import Fault

WORKDIR = "/testbed"
TIMEOUT_CODE = 124
SCRIPTS = "/tmp/swelab-scripts"
SCRIPT_FOLDERS = ("tests", "solution", "logs")
"""Folders in / that scripts of Harbor's tasks expect.

They are links to folders of the same names in SCRIPTS.
"""


class SandboxError(Fault):
    """A sandbox failed a request. The message is one line for a person."""


class SandboxLost(SandboxError):
    """The sandbox itself failed or was ended from outside. This says nothing about the command."""


class EngineDown(SandboxLost):
    """The container engine does not respond. The caller tries again after a while."""


class ImageMissing(SandboxError):
    """The image was not pulled, or the engine does not have the image any more."""


class BackendMissing(SandboxError):
    """This machine lacks something that the backend needs. The message says what to install or allow."""


class PathRefused(SandboxError):
    """`put` or `get` refused a path.

    The path leads out of the sandbox or through a symlink, or the file is not regular or is too large.
    """


class LimitMet(SandboxError):
    """One of a command's limits ended the command; see `ExecResult.check`."""


class Timeout(LimitMet):
    """The command ran longer than `wall_seconds`."""


class CpuExceeded(LimitMet):
    """The command's processes together used more than `cpu_seconds`."""


class OutOfMemory(LimitMet):
    """The command's processes together took more than `memory_bytes`."""


class SandboxFull(LimitMet):
    """The command wrote more than `disk_bytes`, or a file bigger than `file_bytes`."""


_MET = {"wall": Timeout, "cpu": CpuExceeded, "memory": OutOfMemory, "disk": SandboxFull, "file": SandboxFull}


@dataclass(frozen=True)
class Image:
    """An OCI image that was pulled in advance, and in which a task runs.

    Next to an unpacked `folder` there may be a file `<folder>.json` with the image's OCI configuration
    (`{"config": {"Env": ["NAME=value", ...]}}`). Its variables are set in the sandbox.
    """

    name: str  # the image's name in the task's row
    digest: str  # "sha256:<64 hex>" of its manifest (or of the archive of a forged task's folder)
    folder: Path | None = None  # the unpacked image, for backends without an engine
    workdir: str = WORKDIR  # folder of the repository in the image; a sandbox shows it at WORKDIR
    install: str = ""  # why an install step of its tasks failed, or ""
    for_scripts: bool = False  # whether sandboxes have SCRIPT_FOLDERS (bubblewrap, docker)


@dataclass(frozen=True)
class Limits:
    """Limits of one command. Sizes are bytes, times are seconds."""

    wall_seconds: float = 60
    cpu_seconds: int = 60  # total CPU time of all processes of the command
    memory_bytes: int = 2 << 30  # for all processes together, and for each address space
    processes: int = 64  # threads count as processes
    output_bytes: int = 1 << 20  # longer output loses its middle part
    file_bytes: int = 256 << 20  # biggest single file
    disk_bytes: int = 4 << 30  # size of /testbed, /tmp and home together
    shm_bytes: int = 64 << 20  # size of /dev/shm; the limit at the sandbox's start applies


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class ExecResult:
    """The result of one command.

    `returncode` is the command's exit code, 128+signal if a signal ended the command, or 124 if it met the
    wall limit. `limit` names the limit that was met: "" | "wall" | "cpu" | "memory" | "disk" | "file" |
    "output". With "output" the command was not ended, but `dropped_bytes` bytes of its output were dropped.
    """

    output: bytes  # stdout and stderr in order of arrival; a line replaces dropped bytes
    returncode: int
    timed_out: bool
    dropped_bytes: int
    limit: str
    seconds: float

    def check(self) -> Self:
        """Raises an error if a limit ended the command. Otherwise returns this result.

        Raises Timeout, CpuExceeded, OutOfMemory, SandboxFull. The exit code is not checked.
        """
        if self.limit in _MET:
            raise _MET[self.limit](f"the command met its limit ({self.limit}) after {self.seconds:.1f} s")
        return self


@dataclass(frozen=True)
class SessionAnswer:
    """The output of a session's process since the last request.

    `end` is the reason why the output ends here: "prompt" (the expected prompt arrived), "quiet" (no output
    for a while), "timeout" (the process still runs), "exit" (the process and its descendants have ended).
    """

    output: bytes  # stdout and stderr in order, with the prompt; at most `Limits.output_bytes`
    end: str
    dropped_bytes: int
    seconds: float
    returncode: int | None = None  # with "exit": as `ExecResult.returncode`
    limit: str = ""  # with "exit": the limit that ended the process, as `ExecResult.limit`

    @property
    def text(self) -> str:
        """The output decoded as UTF-8. Invalid bytes become U+FFFD."""
        return self.output.decode("utf-8", "replace")


class Session(Protocol):
    """A process in a sandbox with which the caller exchanges lines.

    A session closes itself at the end of its `with` block.
    """

    def say(
        self, line: str | None, *, until: bytes = b"", timeout: float = 10.0, quiet: float = 0.5
    ) -> SessionAnswer:
        """Writes a line to the process's stdin, and returns the process's answer.

        line: at most 1 MiB. None writes nothing. until: a prompt of at most 256 bytes. The answer ends when
        the output ends with the prompt. The prompt must arrive after the line was written. If `line` is None,
        it must arrive after the last answer. If `until` is empty, the answer ends when bytes have arrived,
        and then no bytes for `quiet` seconds. timeout: maximum seconds. After a timeout, the process
        continues, and further output belongs to the next answer. To wait longer for a prompt, call `say` with
        None.
        After the process has ended, every answer has `end` "exit". Raises SandboxLost, and ValueError for an
        argument outside its limits. Raises SandboxError if the session is closed, or if the process leaves
        more than 1 MiB of input unread.
        """
        ...

    def close(self) -> None:
        """Kills the process and all processes that it started, and waits for their end.

        May be called twice.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Sandbox(Protocol):
    """A private copy of a source tree. A sandbox closes itself at the end of its `with` block."""

    def exec(
        self, command: str, *, env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> ExecResult:
        """Runs `bash -c command` in /testbed. On return, every process that the command started has ended.

        Raises SandboxLost. Several threads may call this on one sandbox. Their commands share its files.
        """
        ...

    def session(
        self, command: str, *, env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> Session:
        """Starts `bash -c command`, with which the caller exchanges lines. Returns when the command runs.

        The limits are those of `exec`. `wall_seconds` limits the time from start to end. The command is
        killed when the sandbox closes. Its stdin is not a terminal. Raises SandboxLost, and ValueError if
        bash does not accept the command as an argument.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Writes a file. `path` is relative to WORKDIR, or absolute below WORKDIR or /tmp.

        Missing parent folders are created. An existing file keeps its mode. Raises PathRefused, OSError (disk
        full).
        """
        ...

    def get(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """Reads a regular file. `path` is as in `put`. Raises PathRefused, FileNotFoundError."""
        ...

    def close(self) -> None:
        """Ends all commands and removes the sandbox's private files. May be called twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Closing:
    """An object that closes itself at the end of its `with` block."""

    def close(self) -> None:
        """See `Sandbox.close`."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Backend(Protocol):
    """A way to start sandboxes."""

    name: str

    def start(
        self,
        tree: Path | None,
        *,
        image: Image | None = None,
        limits: Limits = DEFAULT_LIMITS,
        forgets: bool = False,
    ) -> Sandbox:
        """Starts a sandbox whose /testbed is a copy of `tree`, or of `image.workdir` without a tree.

        forgets: when the sandbox closes, drop the pages of shared files that its commands loaded into the
        page cache. Otherwise another sandbox could find out which files were read, because a cached page is
        read faster. Backends that cannot drop pages ignore this argument.
        Raises ImageMissing, SandboxLost (also EngineDown), OSError (disk full, no tree), ValueError (neither
        tree nor image).
        """
        ...
