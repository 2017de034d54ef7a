"""Sandboxes by bubblewrap: plain Linux namespaces, without daemon or image.

Each command is a separate bwrap process on the sandbox's private folders. This costs a few milliseconds. As
root, we run commands as another host user without capabilities. Otherwise we use a user namespace.

All sandboxes end with this process, by a pid namespace. bwrap's own --die-with-parent is not enough. If bwrap
is killed just after its fork, its child waits forever. Also, the kernel sends the parent-death signal when
the forking thread ends, not when the process ends. Here the namespace's init process (`cat`) reads a pipe to
which only this process can write. When this process ends, the kernel closes the pipe. Then init ends, and the
kernel kills all processes in the namespace.
"""

import os
import select
import selectors
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from swelab.sandbox import image_root, isolation, rootfs, safe_files
from swelab.sandbox.bounded_output import BoundedOutput
from swelab.sandbox.bwrap_process import Launch, gate_command, refusal, refusal_of
from swelab.sandbox.live_session import LiveSession
from swelab.sandbox.memory_filesystem import Mounter, PrivateFiles, mounter
from swelab.sandbox.memory_group import MemoryGroup, prune_groups
from swelab.sandbox.protocol import (
    DEFAULT_LIMITS,
    TIMEOUT_CODE,
    BackendMissing,
    Closing,
    ExecResult,
    Image,
    ImageMissing,
    Limits,
    SandboxError,
    SandboxLost,
)
from swelab.sandbox.requirements import check_kernel, diagnosis, tool
from swelab.sandbox.resource_limits import DiskMeter, Watch
from swelab.sandbox.scratch import MEMORY, UserId, copy_tree, prune, runnable_base, spare_uids
from swelab.sandbox.seccomp import filter_program

_START_SECONDS, _END_SECONDS = 10.0, 2.0
_living: "weakref.WeakSet[Lifeline]" = weakref.WeakSet()


class Lifeline:
    """The pid namespace. Raises SandboxLost.

    enter: argv to put before a command, so that the command runs in the namespace.
    """

    def __init__(self, *, user_namespace: bool, mounter: Mounter | None = None) -> None:
        """Starts the namespace.

        user_namespace: also make a user namespace. Without one, only root may make a pid namespace. mounter:
        all its mounts, also later ones, are visible in the namespace.
        """
        own = ("--user", "--map-current-user") if user_namespace else ()
        # bwrap looks up its children in /proc, which must belong to the same pid namespace.
        spaces = ("--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--propagation", "slave")
        unshare, env, cat, nsenter = (tool(name) or name for name in ("unshare", "env", "cat", "nsenter"))
        self._owner = os.getpid()

        def start() -> "subprocess.Popen[bytes]":
            return subprocess.Popen(
                # SIGCHLD is ignored, also after exec. So the kernel reaps the orphans of the namespace.
                [unshare, *own, *spaces, "--", env, "--ignore-signal=CHLD", cat],
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env={},
                cwd="/",
                start_new_session=True,
            )

        try:
            self._process = mounter.do(start) if mounter else start()
        except OSError as error:
            raise SandboxLost(f"no pid namespace for sandboxes: {error}") from error
        self._end = weakref.finalize(self, _close, self._process, self._owner)
        _living.add(self)
        init = self._first_child()
        entered = ("--user", "--preserve-credentials") if user_namespace else ()
        self.enter = [nsenter, f"--target={init}", *entered, "--pid", "--mount", "--"]

    def _first_child(self) -> int:
        """Returns the pid of the namespace's init, after init has echoed a line to show that it runs."""
        assert self._process.stdin and self._process.stdout
        line = b""
        with suppress(BrokenPipeError):
            self._process.stdin.write(b"\n")
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        if poll.poll(_START_SECONDS * 1000):
            line = self._process.stdout.read(1 << 12) or b""
        pid = self._process.pid
        if line != b"\n":
            self._process.stdin.close()
            line += self._process.stdout.read() if line else b""
            self._end()
            reason = line.decode(errors="replace").strip() or "no answer"
            raise SandboxLost(f"no pid namespace for sandboxes: {reason}")
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            return int(children.read().split()[0])

    def holds(self) -> bool:
        """Returns whether this process can start programs in the namespace.

        A process that was forked after the start of the namespace cannot.
        """
        return self._owner == os.getpid() and self._process.poll() is None

    def let_go(self) -> None:
        """Closes a forked child's copy of the pipe. Otherwise the namespace would outlive the parent."""
        if self._process.stdin:
            self._process.stdin.close()


def _close(process: "subprocess.Popen[bytes]", owner: int) -> None:
    for end in (process.stdin, process.stdout):
        if end:
            end.close()
    if os.getpid() != owner:
        return
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:  # a child forked without Python's fork hooks still has the pipe open
        process.kill()
        process.wait()


def _after_fork() -> None:
    for lifeline in list(_living):
        lifeline.let_go()


os.register_at_fork(after_in_child=_after_fork)


_CPU_CODE, _FILE_CODE, _KILL_CODE = 128 + 24, 128 + 25, 128 + 9  # SIGXCPU, SIGXFSZ, SIGKILL


class BubblewrapSandbox(Closing):
    """See `protocol.Sandbox`. The argument `forgets` is described at `protocol.Backend.start`."""

    def __init__(
        self,
        backend: "BubblewrapBackend",
        tree: Path | None,
        image: Image | None,
        limits: Limits,
        forgets: bool,
    ) -> None:
        self._backend, self._limits, self._forgets = backend, limits, forgets
        self._root = backend.root_of(image)
        self._closed, self._running = False, 0
        self._state = threading.Condition()
        self._user = UserId(backend.uids) if backend.uids else None
        self._group = MemoryGroup.make() if self._user else None
        try:
            self._owner = (self._user.value,) * 2 if self._user else (os.getuid(), os.getgid())
            self._scratch = PrivateFiles(backend.base, limits, backend.mounter())
        except BaseException:
            self._release_user()
            raise
        try:
            self._fill(tree or self._own_tree(image))
        except BaseException:
            self.close()
            raise

    @property
    def folder(self) -> Path:
        """The folder on the host that holds the sandbox's private files."""
        return self._scratch.path

    def _own_tree(self, image: Image | None) -> Path:
        if self._root is None or image is None:
            raise ValueError("a sandbox needs a tree or an image")
        if self._root.workdir is None:
            raise ImageMissing(f"image {image.name} ({image.digest}) has no folder {image.workdir}")
        return self._root.workdir

    def _fill(self, tree: Path) -> None:
        folder, inside, root = self._scratch.path, self._scratch.inside, self._root
        inner = self._owner if self._user else (1000, 1000)
        if root:
            image_root.write_accounts(root, folder, *inner)
        else:
            rootfs.write_private_files(folder, self._backend.toolbox, *inner)
        if self._user:
            for name in ("testbed", "tmp", "home"):
                os.chown(folder / name, *self._owner)
        copy_tree(tree, folder / "testbed", self._owner if self._user else None)
        self._meter = DiskMeter(folder)
        arguments = isolation.bwrap(as_root=self._user is not None)
        for name, value in rootfs.ENVIRONMENT.items():
            arguments += ["--setenv", name, value]
        shm = self._limits.shm_bytes
        self._environment = root.environment | {"HOME": rootfs.HOME} if root else {}
        if root:
            self._arguments = arguments + ["--setenv", "PATH", image_root.DEFAULT_PATH]
            self._arguments += image_root.image_mounts(root, inside, shm)
        else:
            self._arguments = arguments + rootfs.mounts(inside, self._backend.toolbox, shm)

    def exec(
        self, command: str, *, env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> ExecResult:
        """Runs `bash -c command` in /testbed; see the protocol. Raises SandboxLost, ValueError (env)."""
        limits = limits or self._limits
        variables = {**self._environment, **(env or {})}
        return refusal_of(command, env or {}) or self._run(gate_command(command, variables, limits), limits)

    def session(
        self, command: str, *, env: Mapping[str, str] | None = None, limits: Limits | None = None
    ) -> LiveSession:
        """Starts `bash -c command` as an interactive session; see the protocol."""
        limits = limits or self._limits
        if reason := refusal(command, env or {}):
            raise ValueError(reason)
        inner = gate_command(command, {**self._environment, **(env or {})}, limits, live=True)
        return LiveSession(lambda session: self._run(inner, limits, session), limits.output_bytes)

    def _run(self, inner: list[bytes], limits: Limits, session: LiveSession | None = None) -> ExecResult:
        with self._state:
            self._check_open()
            self._running += 1
        try:
            launch = self._launch(inner)
            try:
                return self._supervise(launch, limits, session)
            finally:
                try:
                    launch.end()
                finally:
                    launch.close()
        finally:
            with self._state:
                self._running -= 1
                self._state.notify_all()

    def _launch(self, inner: list[bytes]) -> Launch:
        return Launch(self._backend.enter(), self._arguments, self._backend.filter, self._drop() + inner)

    def _drop(self) -> list[bytes]:
        if not self._user:
            return []
        program = "setpriv" if self._root else self._backend.setpriv
        argv = [program, f"--reuid={self._user.value}", f"--regid={self._user.value}"]
        argv += ["--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
        return [os.fsencode(argument) for argument in argv]

    def _supervise(self, launch: Launch, limits: Limits, session: LiveSession | None) -> ExecResult:
        output = session.heard if session else BoundedOutput(limits.output_bytes)
        started = time.monotonic()
        watch = Watch(launch.init_pid, self._meter, limits, self._group)
        launch.go()
        if session:
            session.open(launch.gate, launch.kill, launch.output)
        try:
            limit = self._follow(launch, watch, None if session else output, started + limits.wall_seconds)
        finally:
            if session:
                session.shut()
        code = launch.end()
        seconds, limit = time.monotonic() - started, limit or watch.ended_for()
        if limit == "room" or self._scratch.crowding(limits):
            raise SandboxLost(f"No space left on device: scratch folder {self._backend.base} is full")
        output.add(launch.rest_of_output())
        if limit == "closed":
            raise SandboxLost("the sandbox was closed while a command ran")
        if limit:
            code = {"wall": TIMEOUT_CODE, "cpu": _CPU_CODE}.get(limit, _KILL_CODE)
        elif code is None:
            raise SandboxLost("the sandbox was killed from outside")
        else:
            limit = {_CPU_CODE: "cpu", _FILE_CODE: "file"}.get(code, "output" if output.dropped else "")
        return ExecResult(output.value(), code, limit == "wall", output.dropped, limit, seconds)

    def _follow(self, launch: Launch, watch: Watch, output: BoundedOutput | None, deadline: float) -> str:
        """Reads output until the command ends. Returns the limit that ended the command, or ""."""
        with selectors.PollSelector() as selector:
            if output is not None:
                selector.register(launch.output, selectors.EVENT_READ)
            selector.register(launch.bwrap, selectors.EVENT_READ)
            while True:
                now = time.monotonic()
                ready = {key.fd for key, _ in selector.select(max(0.0, min(deadline, watch.due) - now))}
                if output and launch.output in ready and not output.read(launch.output):
                    selector.unregister(launch.output)  # the command closed its output, but still runs
                if launch.bwrap in ready:
                    return ""
                now = time.monotonic()
                limit = "wall" if now >= deadline else ""
                if now >= watch.due:
                    limit = limit or watch.check() or self._scratch.crowding(watch.limits)
                limit = "closed" if self._closed else limit
                if limit:
                    launch.kill()
                    return limit

    def put(self, path: str, data: bytes) -> None:
        """Writes a file; see `protocol.Sandbox.put`."""
        self._check_open()
        safe_files.write_file(self._scratch.path, path, data, self._owner)

    def get(self, path: str, max_bytes: int = 64 << 20) -> bytes:
        """Reads a regular file; see `protocol.Sandbox.get`."""
        self._check_open()
        return safe_files.read_file(self._scratch.path, path, max_bytes)

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxLost("the sandbox is closed")

    def close(self) -> None:
        """Ends all commands and removes the private files."""
        with self._state:
            self._closed = True
            self._state.wait_for(lambda: self._running == 0)
            self._scratch.remove()
            self._release_user()

    def _release_user(self) -> None:
        if self._group:
            self._group.remove(drops=self._forgets)
        if self._user:
            self._user.release()


class BubblewrapBackend:
    """See `protocol.Backend`. The constructor checks the machine and removes leftovers of killed runs."""

    name = "bubblewrap"

    def __init__(self, toolbox: Path) -> None:
        check_kernel()
        bwrap = tool("bwrap")
        if bwrap is None:
            raise BackendMissing("bubblewrap is not installed: no program `bwrap` (package bubblewrap)")
        self.uids = spare_uids()
        self.setpriv = tool("setpriv") or ""
        if self.uids and not self.setpriv:
            raise BackendMissing("no program `setpriv` (package util-linux), needed to leave root")
        self.toolbox = rootfs.read_toolbox(toolbox)
        self.filter = filter_program()
        self.base = runnable_base()
        self.prepare(bwrap)
        prune(self.base)
        prune_groups()
        self._probe()

    def prepare(self, program: str) -> None:
        """Sets the initial state. program: path of the program that builds sandboxes (bwrap or apptainer)."""
        self._program = program
        self._lifeline: Lifeline | None = None
        self._roots: dict[Image, image_root.ImageRoot] = {}
        self._lock = threading.Lock()

    def _probe(self) -> None:
        try:
            folder = tempfile.TemporaryDirectory(prefix="swelab-probe-", dir=self.base)
            with folder as empty, self.start(Path(empty)) as sandbox:
                result = sandbox.exec(rootfs.PROBE)
        except (SandboxError, OSError) as error:
            raise BackendMissing(diagnosis(str(error), as_root=bool(self.uids))) from error
        if result.returncode:
            said = result.output.decode(errors="replace").splitlines() or [f"exit {result.returncode}"]
            raise BackendMissing(f"the toolbox {self.toolbox.path} does not work in a sandbox: {said[-1]}")

    def enter(self) -> list[str]:
        """Returns argv that runs the program in our pid namespace (`Lifeline`). Raises SandboxLost."""
        with self._lock:
            if self._lifeline is None or not self._lifeline.holds():
                self._lifeline = Lifeline(user_namespace=not self.uids, mounter=self.mounter())
            return [*self._lifeline.enter, self._program]

    def mounter(self) -> Mounter | None:
        """Returns the mounter of private file systems, or None if all sandboxes share a file system."""
        return mounter() if self.uids and self.base == Path(MEMORY) else None

    def root_of(self, image: Image | None) -> image_root.ImageRoot | None:
        """Prepares the root of an image once. Returns None without an image. Raises ImageMissing, OSError."""
        if image is None:
            return None
        with self._lock:
            if image not in self._roots:
                self._roots[image] = image_root.open_image(image, self.base)
            return self._roots[image]

    def start(
        self,
        tree: Path | None,
        *,
        image: Image | None = None,
        limits: Limits = DEFAULT_LIMITS,
        forgets: bool = False,
    ) -> BubblewrapSandbox:
        """Starts a fresh sandbox; see `protocol.Backend.start`. An image is an unpacked folder."""
        return BubblewrapSandbox(self, Path(tree) if tree else None, image, limits, forgets)
