"""Types of a sandbox: a private copy of a source tree in which shell commands run under limits.

Grading and scaffolds are written against these types only; which backend stands behind them is a setting.
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
"""Folders at the root that scripts of Harbor's tasks expect: links to folders of these names in SCRIPTS."""


class SandboxError(Fault):
    """A sandbox failed a request; the message is one line for a person."""


class SandboxLost(SandboxError):
    """The sandbox itself failed or was ended from outside: says nothing about the command in it."""


class EngineDown(SandboxLost):
    """The container engine does not answer; the caller tries again after a while."""


class ImageMissing(SandboxError):
    """The image was not pulled, or the engine does not know it (any more)."""


class BackendMissing(SandboxError):
    """This machine lacks what the backend needs; the message says what to install or allow."""


class PathRefused(SandboxError):
    """A path of `put` or `get` leaves the sandbox, crosses a symlink, or is no regular file of fair size."""


class LimitMet(SandboxError):
    """A command was ended by a limit of its own; see `ExecResult.check`."""


class Timeout(LimitMet):
    """It ran longer than `wall_seconds`."""


class CpuExceeded(LimitMet):
    """Its processes together used more than `cpu_seconds`."""


class OutOfMemory(LimitMet):
    """Its processes together took more than `memory_bytes`."""


class SandboxFull(LimitMet):
    """It wrote more than `disk_bytes`, or a file bigger than `file_bytes`."""


_MET = {
    "wall": Timeout,
    "cpu": CpuExceeded,
    "memory": OutOfMemory,
    "disk": SandboxFull,
    "file": SandboxFull,
}


@dataclass(frozen=True)
class Image:
    """An OCI image that was pulled beforehand: what a task runs in.

    Next to an unpacked `folder` may lie `<folder>.json`, the image's own OCI configuration
    (`{"config": {"Env": ["NAME=value", ...]}}`), whose variables hold in the sandbox.
    """

    name: str  # as the task's row says it
    digest: str  # "sha256:<64 hex>" of its manifest (or of the archive of a forged task's folder)
    folder: Path | None = None  # its unpacked root folder, for backends without an engine
    workdir: str = WORKDIR  # where its repository lies; always seen at WORKDIR
    install: str = ""  # why the install steps of its tasks failed, if they did
    for_scripts: bool = False  # its sandboxes have SCRIPT_FOLDERS; on bubblewrap and docker alone


@dataclass(frozen=True)
class Limits:
    """Limits of one command. Sizes are bytes, times are seconds."""

    wall_seconds: float = 60
    cpu_seconds: int = 60  # of all processes of the command together
    memory_bytes: int = 2 << 30  # of all processes together, and of each one's address space
    processes: int = 64  # threads count as processes
    output_bytes: int = 1 << 20  # kept: head and tail halves; the rest is counted, not kept
    file_bytes: int = 256 << 20  # biggest single file
    disk_bytes: int = 4 << 30  # the whole private copy with /tmp and home
    shm_bytes: int = 64 << 20  # /dev/shm; set when the sandbox starts


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class ExecResult:
    """How one command ended.

    `returncode` is the command's own, 128+signal when a signal ended it, 124 on wall time.
    `limit` names the limit that was met: "" | "wall" | "cpu" | "memory" | "disk" | "file" | "output";
    with "output" the command was not disturbed, only `dropped_bytes` of its output were not kept.
    """

    output: bytes  # stdout and stderr as they came; one marker line stands for what was dropped
    returncode: int
    timed_out: bool
    dropped_bytes: int
    limit: str
    seconds: float

    def check(self) -> Self:
        """The result itself, for callers who cannot use what a limit cut short.

        Raises Timeout, CpuExceeded, OutOfMemory, SandboxFull. An exit code that is not 0 raises nothing.
        """
        if self.limit in _MET:
            raise _MET[self.limit](f"the command met its limit ({self.limit}) after {self.seconds:.1f} s")
        return self


@dataclass(frozen=True)
class SessionAnswer:
    """Output of a session's process since the last request.

    `end` is why the output ends here: "prompt" (the expected prompt came), "quiet" (no output for a while),
    "timeout" (the process still runs), "exit" (the process has ended, with all that it started).
    """

    output: (
        bytes  # stdout and stderr as they came, the prompt too; at most `Limits.output_bytes`, as with exec
    )
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
    """A process in a sandbox that is spoken to line by line; a context manager that closes itself."""

    def say(
        self, line: str | None, *, until: bytes = b"", timeout: float = 10.0, quiet: float = 0.5
    ) -> SessionAnswer:
        """Write a line (None: nothing) to the process's stdin, and wait for the end of its answer.

        The answer ends when the output ends with the prompt `until`, in bytes that came after the line was
        written (with None: after the last answer). Without a prompt it ends when bytes came and then none for
        `quiet` seconds. At the latest it ends after `timeout` seconds; the process then goes on, and what it
        still writes opens the next answer: wait for its prompt with None before the next line.

        After the process has ended, every answer has `end` "exit". A line has at most 1 MiB, and no more may
        wait unread; a prompt has at most 256 bytes. Raises SandboxLost; SandboxError (the session is closed,
        or the process does not read); ValueError.
        """
        ...

    def close(self) -> None:
        """Kill the process and all it started; returns when they are gone. May be called twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Sandbox(Protocol):
    """One private machine; a context manager that closes itself."""

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
        """Start `bash -c command` as `exec` does, and speak to it; returns when it runs.

        It is bounded as `exec` is, its whole life by `wall_seconds`, and ends with the sandbox. Its stdin is
        no terminal. Raises SandboxLost, ValueError (a command that bash cannot be given).
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a file; `path` is relative to WORKDIR or absolute under WORKDIR or /tmp.

        Parent folders are made, an existing file keeps its mode. Raises PathRefused, OSError (disk full).
        """
        ...

    def get(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """Read a regular file (same paths as `put`). Raises PathRefused, FileNotFoundError."""
        ...

    def close(self) -> None:
        """End what runs and remove the private files. May be called twice."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Closing:
    """Ends with the block that it is opened for."""

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
        """A fresh sandbox whose /testbed is a copy of `tree`, else of the image's own workdir.

        forgets: what its commands bring into the machine's memory of files that all sandboxes share is
        dropped when it closes, where the backend can do that. Others could tell by the time of a read.

        Raises ImageMissing, SandboxLost (EngineDown among them), OSError (disk full, no tree), ValueError
        (neither tree nor image).
        """
        ...
