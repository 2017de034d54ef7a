"""A Ray cluster of two nodes in its own network namespace, which nothing outside can reach."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tests.contract.attacks import until
from tests.processes import matching

RAY = Path(sys.executable).with_name("ray")
PORT = 26379
HOLD = """
import fcntl, socket, struct
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
    fcntl.ioctl(s, 0x8914, struct.pack("16sh14x", b"lo", 1))  # SIOCSIFFLAGS: up
print("up", flush=True)
input()
"""


class Cluster:
    """The running nodes. `nodes` are the processes of `ray start --block`; the head is first."""

    def __init__(self, holder, folder):
        self.holder, self.folder, self.nodes = holder, folder, []
        self.address = f"127.0.0.1:{PORT}"
        self.env = {
            **os.environ,
            "RAY_ADDRESS": self.address,
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_failure_threshold": "4",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": "0123456789abcdef" * 2,
        }

    def inside(self, *command, **options):
        """Starts a process in the cluster's network."""
        # When this process ends, the processes that it started end too.
        tied = ["setpriv", "--pdeathsig", "TERM", "--", *map(str, command)]
        command = ["nsenter", "--net", "--target", str(self.holder.pid), *tied]
        return subprocess.Popen(command, **{"env": self.env, **options})

    def start(self, *arguments):
        log = open(self.folder / f"node{len(self.nodes)}.log", "wb")
        common = ["--num-cpus=1", "--object-store-memory=80000000", "--disable-usage-stats", "--block"]
        node = self.inside(RAY, "start", *arguments, *common, stdout=log, stderr=log, start_new_session=True)
        self.nodes.append(node)
        said = Path(log.name)
        until(lambda: b"Ray runtime started" in said.read_bytes() or node.poll() is not None)
        assert b"Ray runtime started" in said.read_bytes(), said.read_text()

    def processes(self, number):
        """Returns the ids of all living processes of a node, found by their session."""
        session = self.nodes[number].pid

        def living(folder):
            state, _, _, its_session = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            return int(its_session) == session and state != "Z"

        return matching(living)

    def actor(self, number):
        """Returns our actor's process on a node, or None."""
        for pid in self.processes(number):
            with suppress(OSError):
                if b"BootHost" in (Path("/proc") / str(pid) / "cmdline").read_bytes():
                    return pid
        return None

    def kill_actor(self, number):
        """Waits for our actor's process on a node, then kills it."""
        pid = until(lambda: self.actor(number))
        assert pid, f"no process of ours on node {number}"
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def kill(self, number):
        """Kills a node at once, as a power failure would."""
        while pids := self.processes(number):
            for pid in pids:
                with suppress(ProcessLookupError):  # many processes live only for milliseconds
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        self.nodes[number].wait()


@contextmanager
def cluster():
    """Starts two nodes, and ends all of their processes after the block."""
    with ExitStack() as stack:
        # Ray's sockets are deep in this folder, and a socket's path has at most 107 bytes.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="ray-"))
        holder = subprocess.Popen(
            ["unshare", "--net", sys.executable, "-c", HOLD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(holder.communicate, "\n")
        assert holder.stdout.readline() == "up\n"
        running = Cluster(holder, Path(folder))

        def end():
            for number in reversed(range(len(running.nodes))):
                running.kill(number)

        stack.callback(end)
        head = ["--head", "--node-ip-address=127.0.0.1", f"--port={PORT}", "--include-dashboard=false"]
        running.start(*head, f"--temp-dir={folder}/t")
        running.start(f"--address={running.address}", "--node-ip-address=127.0.0.1")
        yield running
