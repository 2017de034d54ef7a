"""Starts child processes that never outlive this process.

A model server or a trainer starts processes of its own. `ChildProcess` puts the whole process tree into a PID
namespace (bubblewrap). The kernel kills all processes of the namespace when its first process ends. That
happens when we stop it, when we end, and when we are killed with SIGKILL.
Without bubblewrap, or without user namespaces, the child asks the kernel to kill it when its parent ends
(`PR_SET_PDEATHSIG`). Then `stop` kills the process group of the child. In both cases the child also ends when
the thread that started it ends.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import IO

from swelab.records import shorten

PRIVATE = "/dev/shm"
"""A folder in memory that only the command in a namespace sees. It is removed with the namespace."""

LID = (
    *("bwrap", "--die-with-parent", "--unshare-pid", "--dev-bind", "/", "/", "--proc", "/proc"),
    *("--perms", "0700", "--tmpfs", PRIVATE),
)

UNMASKED = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Opens another namespace, for a command that makes namespaces itself.

Under LID the kernel treats /proc as masked.
"""
REAPER = '"$@" & wait $!'
"""The first process of a namespace. It reaps orphaned processes."""

FAULT = re.compile(r"\b\w*(Error|Exception|Killed|out of memory)\b", re.IGNORECASE)

DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Runs a program that the kernel kills when its parent ends (PR_SET_PDEATHSIG is 1).

Exits if the parent ended before that call. Then getppid() differs.
"""


def torch_environment(threads: int) -> dict[str, str]:
    """Returns our environment for a child that imports swelab and runs torch on `threads` CPUs."""
    root = str(Path(__file__).resolve().parents[2])
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")])),
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),  # Snakemake sets both to the cores of the job
        "GOMP_SPINCOUNT": "3000",  # longer spins, the default, are ten times slower on shared cores
        "TOKENIZERS_PARALLELISM": "false",
    }


@cache
def has_namespaces() -> bool:
    """Returns whether bubblewrap is installed and allowed to open a PID namespace here."""
    try:
        return subprocess.run([*LID, "true"], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@cache
def unmasked_prefix() -> Sequence[str]:
    """Returns the command prefix `UNMASKED` for this user, or () if it is not permitted here."""
    for mapped in ((), ("--user", "--map-current-user")):
        lid = (*UNMASKED, *mapped)
        with suppress(OSError, subprocess.TimeoutExpired):
            if subprocess.run([*lid, "true"], capture_output=True, timeout=20).returncode == 0:
                return lid
    return ()


Command = Callable[[str], Sequence[str]]
"""Function from the path of a private folder to the arguments of a command."""


class ChildProcess:
    """A started command, whose output goes to `log`. The command ends with `stop`, or when we end.

    `command` makes the argument vector from the path of a private folder. The folder contains `files`, and is
    the command's TMPDIR. Secrets in `files` are not visible in `ps`, and are removed at the end. `stdin`:
    descriptor of the command's input, by default empty. `nests`: whether the command makes sandboxes itself.
    Then it runs under `UNMASKED`.
    """

    def __init__(
        self,
        command: Command,
        *,
        env: Mapping[str, str],
        log: IO[bytes],
        files: Mapping[str, bytes] | None = None,
        stdin: int = subprocess.DEVNULL,
        nests: bool = False,
    ):
        self._stdin = stdin
        self._scratch: str | None = None
        self._first = 0
        self._lid = [*unmasked_prefix(), "sh", "-c", REAPER, "sh"] if nests and unmasked_prefix() else []
        lid = not nests and has_namespaces()
        start = self._start_in_namespace if lid else self._start_in_group
        self.process = start(command, dict(env), log, files or {})

    def _start_in_namespace(
        self, command: Command, env: Mapping[str, str], log: IO[bytes], files: Mapping[str, bytes]
    ) -> subprocess.Popen[bytes]:
        with ExitStack() as stack:
            facts = stack.enter_context(os.fdopen((ends := os.pipe())[0], "rb"))
            info = stack.enter_context(os.fdopen(ends[1], "wb"))
            lid, passed = [*LID, "--info-fd", str(info.fileno())], [info.fileno()]
            for name, data in files.items():
                content = stack.enter_context(tempfile.TemporaryFile())
                content.write(data)
                content.seek(0)
                lid += ["--perms", "0600", "--file", str(content.fileno()), f"{PRIVATE}/{name}"]
                passed.append(content.fileno())
            argv = [*lid, *command(PRIVATE)]
            process = _popen(argv, {**env, "TMPDIR": PRIVATE}, log, passed, self._stdin)
            info.close()
            text = facts.read()
        self._first = json.loads(text)["child-pid"] if text else 0
        return process

    def _start_in_group(
        self, command: Command, env: Mapping[str, str], log: IO[bytes], files: Mapping[str, bytes]
    ) -> subprocess.Popen[bytes]:
        # The path of a UNIX socket in this folder must fit into 107 bytes.
        folder = "/tmp" if len(tempfile.gettempdir()) > 85 else None
        self._scratch = tempfile.mkdtemp(prefix="swelab-", dir=folder)
        for name, data in files.items():
            with open(os.open(f"{self._scratch}/{name}", os.O_WRONLY | os.O_CREAT, 0o600), "wb") as stream:
                stream.write(data)
        tied = [sys.executable, "-c", DIE_WITH_PARENT, str(os.getpid()), *self._lid]
        argv = [*tied, *command(self._scratch)]
        return _popen(argv, {**env, "TMPDIR": self._scratch}, log, [], self._stdin)

    def poll(self) -> int | None:
        """Returns the command's exit status, or None while it runs."""
        return self.process.poll()

    def _command_pid(self) -> int | None:
        """Returns the command's own pid. In a namespace, the command is the child of the first process."""
        if not self._first:
            return self.process.pid
        try:
            children = Path(f"/proc/{self._first}/task/{self._first}/children").read_text()
            return int(children.split()[0])
        except (OSError, IndexError):
            return None

    def stop(self, grace_seconds: float = 5) -> None:
        """Interrupts the command, waits, then kills processes that still run. May be called twice.

        With a grace of 0, the processes are killed at once.
        """
        if grace_seconds and self.process.poll() is None and (pid := self._command_pid()):
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.kill(pid, signal.SIGINT)
                self.process.wait(grace_seconds)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self._scratch:
            shutil.rmtree(self._scratch, ignore_errors=True)


def _popen(
    argv: Sequence[str], env: Mapping[str, str], log: IO[bytes], passed: Sequence[int], stdin: int
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        env=env,
        stdin=stdin,
        stdout=log,
        stderr=subprocess.STDOUT,
        pass_fds=passed,
        start_new_session=True,
    )


def tail(log: Path, size: int = 16384) -> str:
    """Returns the last `size` bytes of a log as text."""
    with open(log, "rb") as stream:
        stream.seek(0, os.SEEK_END)
        stream.seek(max(0, stream.tell() - size))
        return stream.read().decode("utf-8", "replace")


def fault_line(log: Path) -> str:
    """Returns a log's last line that names a fault.

    If no line names a fault, returns the log's last lines, joined into one.
    """
    lines = [line.strip() for line in tail(log).replace("\r", "\n").splitlines() if line.strip()]
    faults = [line for line in lines if FAULT.search(line)]
    return shorten(faults[-1] if faults else " | ".join(lines[-3:]) or "it printed nothing", 300)
