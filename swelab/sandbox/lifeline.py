"""Makes a pid namespace for sandboxes. The kernel ends the namespace when this process exits or is killed.

bwrap's own --die-with-parent is not enough. If bwrap is killed just after its fork, its child waits forever.
Also, the kernel sends the parent-death signal when the forking thread ends, not when the process ends. Here
the namespace's init process (`cat`) reads a pipe to which only this process can write. When this process
ends, the kernel closes the pipe. Then init ends, and the kernel kills all processes in the namespace.
"""

import os
import select
import subprocess
import weakref
from contextlib import suppress

from swelab.sandbox.memory_filesystem import Mounter
from swelab.sandbox.protocol import SandboxLost
from swelab.sandbox.requirements import tool

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
