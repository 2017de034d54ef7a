"""Runs one bwrap process. The command in the sandbox starts when the caller sends a byte.

The caller and the first process in the sandbox share a socket, the gate. After the set-up, this process
writes a byte to the gate and waits for a byte. So an earlier failure is a failure of bwrap, and not of the
command. Meanwhile the caller opens a pidfd of the sandbox's init process, which is certainly alive then. When
init ends, all processes of the sandbox have ended.
"""

import json
import os
import re
import select
import signal
import socket
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress

from swelab.sandbox.protocol import WORKDIR, ExecResult, Limits, SandboxLost
from swelab.sandbox.resource_limits import process_tree

_START_SECONDS = 30.0
_END_SECONDS = 10.0
# stdin is the gate. bash reads ~/.bashrc if its stdin is a socket, hence --norc. The variables in "$@" are
# for the command only. bwrap, setpriv and this shell run before the isolation is complete, so they must not
# see these variables.
_READY = "printf r >&0; IFS= read -rN1 _ || exit 125; "
_BECOME = (
    "{{ {limits}; echo 500 >/proc/self/oom_score_adj; }} 2>/dev/null; umask 022; cd {workdir}; unset OLDPWD; "
    '{ready}c=$1; shift; (($#)) && export -- "$@"; exec -a bash /bin/bash {become}'
)
_DEAF, _SPOKEN_TO = '-c "$c" </dev/null', '--norc -c "$c"'
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LONGEST_ARGUMENT = 128 * 1024 - 1  # MAX_ARG_STRLEN of Linux
# The pattern leaves out U+DC80 to U+DCFF, because Python uses them for bytes that are not UTF-8.
_HALF_PAIR = re.compile("[\ud800-\udc7f\udd00-\udfff]")


def gate_command(
    command: str, extra: Mapping[str, str], limits: Limits, *, live: bool = False
) -> list[bytes]:
    """Returns argv of a shell that sets limits, waits at the gate, and then becomes `bash -c command`.

    live: whether the command's stdin is the gate, for later input. Otherwise its stdin is empty.
    """
    settings = f"{process_limits(limits)}; ulimit -u {limits.processes}"
    return [b"/bin/bash", b"--norc", b"-c", *become_words(command, extra, settings, _READY, live=live)]


def process_limits(limits: Limits) -> str:
    """Returns shell commands that set the limits of each process."""
    # `resource_limits.Watch` limits the CPU time of all processes together. The limit of each process matters
    # only if Watch fails.
    return (
        f"ulimit -c 0; ulimit -n 1024; ulimit -v {limits.memory_bytes // 1024}; "
        f"ulimit -f {limits.file_bytes // 1024}; "
        f"ulimit -St {limits.cpu_seconds + 1}; ulimit -Ht {limits.cpu_seconds + 2}"
    )


def become_words(
    command: str, extra: Mapping[str, str], settings: str, ready: str = "", *, live: bool = False
) -> list[bytes]:
    """Returns the arguments after `bash -c`. That shell runs `settings`, then becomes `bash -c command`.

    live: whether the command has the shell's stdin. Otherwise its stdin is empty. ready: shell code that runs
    before the command.
    """
    become = _SPOKEN_TO if live else _DEAF
    script = _BECOME.format(limits=settings, workdir=WORKDIR, ready=ready, become=become)
    variables = [as_bytes(f"{name}={value}") for name, value in extra.items()]
    return [script.encode(), b"bash", as_bytes(command), *variables]


def refusal(command: str, extra: Mapping[str, str]) -> str:
    """Returns why bash does not accept the command as an argument, or "" if bash accepts it.

    Raises ValueError if `extra` contains an invalid environment variable.
    """
    for name, value in extra.items():
        if not VARIABLE.fullmatch(name) or "\0" in value:
            raise ValueError(f"not an environment variable: {name!r}")
    if "\0" in command:
        return "the command holds a NUL byte"
    return "Argument list too long" if len(as_bytes(command)) > _LONGEST_ARGUMENT else ""


def refusal_of(command: str, extra: Mapping[str, str]) -> ExecResult | None:
    """Returns None if bash accepts the command as an argument, or else a result with bash's error message.

    Raises ValueError if `extra` contains an invalid environment variable.
    """
    reason = refusal(command, extra)
    return ExecResult(f"bash: {reason}\n".encode(), 126, False, 0, "", 0.0) if reason else None


def as_bytes(text: str) -> bytes:
    """Encodes text as UTF-8. A model's text may contain half a surrogate pair, which becomes "?"."""
    return _HALF_PAIR.sub("?", text).encode("utf-8", "surrogateescape")


class Launch:
    """The processes of a sandbox, which wait at the gate. Raises SandboxLost if they do not reach the gate.

    bwrap: argv that enters the pid namespace (`Lifeline`) and runs bwrap, without bwrap's arguments.
    arguments: the arguments of bwrap. program: the seccomp filter. command: argv to run in the sandbox.
    """

    def __init__(
        self, bwrap: Sequence[str], arguments: list[str], program: bytes, command: Sequence[bytes]
    ) -> None:
        self.gate: socket.socket  # in a session, later the command's stdin
        self.init = -1  # pidfd of the sandbox's init, which ends after all other processes
        self.init_pid = 0
        self._codes: list[int] = []
        try:
            self._spawn(bwrap, arguments, program, command)
        except OSError as error:
            raise SandboxLost(f"bwrap could not be started: {error}") from error
        try:
            self.bwrap = self._open_pidfd(self._process.pid)
            self._wait_ready()
        except BaseException as error:
            self.gate.close()
            self._process.kill()
            self._process.wait()
            self.close()
            if isinstance(error, OSError):
                raise SandboxLost(f"bwrap could not be followed: {error}") from error
            raise

    def _spawn(
        self, bwrap: Sequence[str], arguments: list[str], program: bytes, command: Sequence[bytes]
    ) -> None:
        with ExitStack() as ours, ExitStack() as theirs:
            self.gate, inner = socket.socketpair()
            ours.callback(self.gate.close)
            theirs.callback(inner.close)
            self.output, output_end = output_pipe(ours, theirs)
            self._status, status_end = _pipe(ours, theirs)
            options = _as_file(theirs, b"".join(os.fsencode(argument) + b"\0" for argument in arguments))
            rules = _as_file(theirs, program)
            argv = [*bwrap, "--args", str(options), "--json-status-fd", str(status_end)]
            argv += ["--seccomp", str(rules), "--"] if program else ["--"]
            self._process = subprocess.Popen(
                [*map(os.fsencode, argv), *command],
                stdin=inner.fileno(),
                stdout=output_end,
                stderr=output_end,
                env={},
                cwd="/",
                pass_fds=(options, status_end, rules) if program else (options, status_end),
                start_new_session=True,
            )
            self._files = ours.pop_all()

    def _wait_ready(self) -> None:
        poll = select.poll()  # unlike select(), accepts descriptors above 1023
        poll.register(self.gate, select.POLLIN)
        poll.register(self.bwrap, select.POLLIN)
        events = dict(poll.poll(_START_SECONDS * 1000))
        ready = self.gate.fileno() in events and self.gate.recv(1) == b"r"
        if not ready:
            self._process.kill()
            _wait_readable(self.bwrap)
            said = self.rest_of_output().decode(errors="replace").strip() or "bwrap ended without a word"
            raise SandboxLost(said.replace("\n", "; "))
        # bwrap reports the pid in its own namespace. We need the pid in ours.
        self.init_pid = next(filter(_is_init, process_tree(self._process.pid)), 0)
        if not self.init_pid:
            raise SandboxLost("the sandbox ended before its command began")
        self.init = self._open_pidfd(self.init_pid)

    def _open_pidfd(self, pid: int) -> int:
        descriptor = os.pidfd_open(pid)
        self._files.callback(os.close, descriptor)
        return descriptor

    def go(self) -> None:
        """Opens the gate, so that the command starts.

        Raises SandboxLost if the process at the gate has ended.
        """
        try:
            self.gate.send(b"g")
        except OSError as error:
            raise SandboxLost(f"the sandbox ended before its command began: {error.strerror}") from error

    def kill(self) -> None:
        """Kills all processes in the sandbox at once."""
        _kill(self.init)

    def end(self) -> int | None:
        """Kills the sandbox, waits until all processes have ended, and returns the command's exit code.

        Returns None if bwrap did not see the command end.
        """
        # We wait for init, too, because bwrap may exit first. The end of init means that all have ended.
        _kill(self.init)
        if not (_wait_readable(self.init) and _wait_readable(self.bwrap)):
            raise SandboxLost("processes of the sandbox did not end when killed")
        self._process.wait()
        return self._code()

    def _code(self) -> int | None:
        statuses = [json.loads(line) for line in _available(self._status).splitlines()]
        self._codes += [int(status["exit-code"]) for status in statuses if "exit-code" in status]
        return self._codes[0] if self._codes else None

    def rest_of_output(self) -> bytes:
        """Returns the bytes in the output pipe.

        After all processes have ended, these are all remaining bytes.
        """
        return _available(self.output)

    def close(self) -> None:
        """Closes the file descriptors. All processes must have ended."""
        self._files.close()


def _is_init(pid: int) -> bool:
    """Returns whether a process is the first process of a pid namespace."""
    try:
        with open(f"/proc/{pid}/status", "rb") as status:
            return any(line.split()[-1] == b"1" for line in status if line.startswith(b"NSpid:"))
    except OSError:
        return False


def _kill(pidfd: int) -> None:
    with suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def _wait_readable(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(_END_SECONDS * 1000))


def _available(descriptor: int) -> bytes:
    """Returns the bytes in a pipe without waiting for more.

    A forked child of the caller may have the other end open, so the end of the pipe may never come.
    """
    os.set_blocking(descriptor, False)
    parts = []
    try:
        while part := os.read(descriptor, 1 << 16):
            parts.append(part)
    except BlockingIOError:
        pass
    return b"".join(parts)


def output_pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    """Returns the read end and the write end of a pipe for the command's output.

    Its mode lets the sandbox's user open the write end again, as `> /dev/stderr` does.
    """
    read, write = _pipe(ours, theirs)
    os.fchmod(write, 0o622)
    return read, write


def _pipe(ours: ExitStack, theirs: ExitStack) -> tuple[int, int]:
    read, write = os.pipe2(os.O_CLOEXEC)
    ours.callback(os.close, read)
    theirs.callback(os.close, write)
    return read, write


def _as_file(owner: ExitStack, content: bytes) -> int:
    descriptor = os.memfd_create("swelab", os.MFD_CLOEXEC)
    owner.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
