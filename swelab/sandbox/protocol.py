"""Types of a sandbox: a private copy of a source tree in which shell commands run under limits.

Grading and scaffolds use these types only; a setting selects the backend that implements them.
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
"""Folders in / that scripts of Harbor's tasks expect; links to folders of the same names in SCRIPTS."""


class SandboxError(Fault):
    """A sandbox failed a request; the message is one line for a person."""


class SandboxLost(SandboxError):
    """The sandbox itself failed or was ended from outside; this tells nothing about its command."""


class EngineDown(SandboxLost):
    """The container engine does not answer; the caller tries again after a while."""


class ImageMissing(SandboxError):
    """The image was not pulled, or the engine does not have it (any more)."""


class BackendMissing(SandboxError):
    """This machine lacks what the backend needs; the message says what to install or allow."""


class PathRefused(SandboxError):
    """A path of `put` or `get` leaves the sandbox, crosses a symlink, or is no regular file within the size
    limit."""


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


_MET = {
    "wall": Timeout,
    "cpu": CpuExceeded,
    "memory": OutOfMemory,
    "disk": SandboxFull,
    "file": SandboxFull,
}


@dataclass(frozen=True)
class Image:
    """An OCI image that was pulled beforehand, and in which a task runs.

    An unpacked `folder` may have a neighbour `<folder>.json` with the image's OCI configuration (`{"config":
    {"Env": ["NAME=value", ...]}}`), whose variables are set in the sandbox.
    """

    name: str  # as in the task's row
    digest: str  # "sha256:<64 hex>" of its manifest (or of the archive of a forged task's folder)
    folder: Path | None = None  # its unpacked root folder, for backends without an engine
    workdir: str = WORKDIR  # folder of its repository; a sandbox always shows it at WORKDIR
    install: str = ""  # why the install steps of its tasks failed, if they did
    for_scripts: bool = False  # sandboxes have SCRIPT_FOLDERS; only on bubblewrap and docker


@dataclass(frozen=True)
class Limits:
    """Limits of one command. Sizes are bytes, times are seconds."""

    wall_seconds: float = 60
    cpu_seconds: int = 60  # of all processes of the command together
    memory_bytes: int = 2 << 30  # for all processes together, and for each address space
    processes: int = 64  # threads count as processes
    output_bytes: int = 1 << 20  # we keep the head and tail, and count the rest
    file_bytes: int = 256 << 20  # biggest single file
    disk_bytes: int = 4 << 30  # the whole private copy with /tmp and home
    shm_bytes: int = 64 << 20  # /dev/shm; set when the sandbox starts


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class ExecResult:
    """How one command ended.

    `returncode` is the command's own, 128+signal if a signal ended it, 124 if it met the wall limit. `limit`
    names the limit that was met: "" | "wall" | "cpu" | "memory" | "disk" | "file" | "output"; with "output"
    the command was not ended, but `dropped_bytes` of its output were not kept.
    """

    output: bytes  # stdout and stderr in order of arrival; one marker line replaces dropped bytes
    returncode: int
    timed_out: bool
    dropped_bytes: int
    limit: str
    seconds: float

    def check(self) -> Self:
        """Returns the result itself; raises if a limit ended the command.

        Raises Timeout, CpuExceeded, OutOfMemory, SandboxFull. An exit code other than 0 raises nothing.
        """
        if self.limit in _MET:
            raise _MET[self.limit](f"the command met its limit ({self.limit}) after {self.seconds:.1f} s")
        return self


@dataclass(frozen=True)
class SessionAnswer:
    """Output of a session's process since the last request.

    `end` is why the output ends here: "prompt" (the expected prompt arrived), "quiet" (no output for a
    while), "timeout" (the process still runs), "exit" (the process and its descendants have ended).
    """

    output: bytes  # stdout and stderr in order, with the prompt; at most `Limits.output_bytes`
    end: str
    dropped_bytes: int
    seconds: float
    returncode: int | None = None  # with "exit": as `ExecResult.returncode`
    limit: str = ""  # with "exit": the limit that ended it, as `ExecResult.limit`

    @property
    def text(self) -> str:
        """The output as UTF-8; other bytes become U+FFFD."""
        return self.output.decode("utf-8", "replace")


class Session(Protocol):
    """A process in a sandbox, with which the caller exchanges lines; a context manager that closes itself."""

    def say(
        self, line: str | None, *, until: bytes = b"", timeout: float = 10.0, quiet: float = 0.5
    ) -> SessionAnswer:
        """Write a line (None: nothing) to the process's stdin, and wait for the end of its answer.

        The answer ends when the output ends with the prompt `until`, in bytes that arrived after the line was
        written (with None: after the last answer). Without a prompt it ends when some bytes have arrived, and
        then none for `quiet` seconds. It ends after `timeout` seconds at the latest. The process then
        continues, and its further output begins the next answer: to wait for its prompt, pass None before the
        next line.

        After the process has ended, every answer has `end` "exit". A line has at most 1 MiB, and so has all
        input that the process has not read; a prompt has at most 256 bytes. Raises SandboxLost; SandboxError
        (the session is closed, or the process does not read); ValueError.
        """
        ...

    def close(self) -> None:
        """Kill the process and all processes that it started; returns when they have ended. May be called
        twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Sandbox(Protocol):
    """One private copy of a source tree; a context manager that closes itself."""

    def exec(
        self, command: str, *, env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> ExecResult:
        """Run `bash -c command` in /testbed; on return every process it started has ended.

        Raises SandboxLost. Calls from several threads on one sandbox are allowed; they share its files.
        """
        ...

    def session(
        self, command: str, *, env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> Session:
        """Start `bash -c command` as `exec` does, for an exchange of lines; returns when the command runs.
        The command has the limits of `exec`, with `wall_seconds` for its whole life, and ends with the
        sandbox. Its stdin is no terminal. Raises SandboxLost, ValueError (a command that cannot be passed to
        bash).
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a file; `path` is relative to WORKDIR or absolute under WORKDIR or /tmp.

        Missing parent folders are made; an existing file keeps its mode. Raises PathRefused, OSError (disk
        full).
        """
        ...

    def get(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """Read a regular file (same paths as `put`). Raises PathRefused, FileNotFoundError."""
        ...

    def close(self) -> None:
        """End all commands and remove the sandbox's private files. May be called twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Closing:
    """Closes itself at the end of its `with` block."""

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
    """A way to make sandboxes on this machine."""

    name: str

    def start(
        self,
        tree: Path | None,
        *,
        image: Image | None = None,
        limits: Limits = DEFAULT_LIMITS,
        forgets: bool = False,
    ) -> Sandbox:
        """A fresh sandbox whose /testbed is a copy of `tree` or, without `tree`, of the image's workdir.

        forgets: when the sandbox closes, drop the pages of shared files that its commands brought into the
        page cache, if the backend can do that. Otherwise other sandboxes could detect them by the time of a
        read.

        Raises ImageMissing, SandboxLost (EngineDown among them), OSError (disk full, no tree), ValueError
        (neither tree nor image).
        """
        ...
