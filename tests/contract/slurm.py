"""A SLURM cluster for tests: munged, slurmctld and one slurmd per node, all on this machine in one folder."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

from swelab.models.serving.server import free_port
from swelab.sandbox.requirements import tool
from tests.contract.attacks import until
from tests.processes import matching

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol", "setpriv", "unshare")
NODES = {"c1": 0, "c2": 0, "g1": 2, "g2": 2}
"""Maps node names to numbers of fake GPUs.

Nodes claim more CPUs than the machine has, so no test measures speed.
"""
MEM_MB = 16000
SYSTEM = "/etc/slurm"
_START_SECONDS = 30

# No control groups, no accounting database. A job of a failed node waits until its credential expires
# before it starts again.
CONF = """\
ClusterName=swelab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=5
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
MpiDefault=none
SwitchType=switch/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
PropagateResourceLimits=NONE
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill
SchedulerParameters=sched_interval=1,bf_interval=5,sched_min_interval=0,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
MinJobAge=600
InactiveLimit=0
KillWait=5
SlurmdTimeout=10
ReturnToService=2
GresTypes=gpu
SlurmdParameters=config_overrides
"""


class TestCluster:
    """A running cluster. env: the variables with which SLURM's commands reach it."""

    __test__ = False

    def __init__(self, folder, cpus, further=""):
        self.folder, self.cpus, self._further = Path(folder), cpus, further
        self.env = {"SLURM_CONF": f"{self.folder}/slurm.conf"}
        self._daemons = {}

    def start(self):
        self.folder.chmod(0o755)
        (self.folder / "state").mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        self._configure()
        self._start(
            "munged",
            *("--foreground", f"--socket={self.folder}/munge.socket", f"--key-file={key}"),
            *(f"--pid-file={self.folder}/munge.pid", f"--seed-file={self.folder}/munge.seed"),
        )
        self._await(lambda: (self.folder / "munge.socket").exists(), "munged")
        self._start("slurmctld", "-D", "-f", self.env["SLURM_CONF"])
        for node in NODES:
            self.start_node(node)
        self._await(lambda: set(self.states().values()) == {"idle"}, "slurmctld")

    def _configure(self):
        host = socket.gethostname().partition(".")[0]
        text = CONF.format(folder=self.folder, host=host, port=free_port()) + self._further
        gres = []
        for node, gpus in NODES.items():
            (self.folder / f"spool.{node}").mkdir()
            text += f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={free_port()}"
            text += (
                f" CPUs={self.cpus} RealMemory={MEM_MB} Feature=real"
                + (f" Gres=gpu:fake:{gpus}" if gpus else "")
                + "\n"
            )
            for number in range(gpus):
                device = self.folder / f"gpu-{node}-{number}"
                os.mknod(device, 0o20666, os.makedev(1, 3))  # one more /dev/null
            if gpus:
                gres.append(
                    f"NodeName={node} Name=gpu Type=fake File={self.folder}/gpu-{node}-[0-{gpus - 1}]\n"
                )
        for role in "cg":
            names = ",".join(node for node in NODES if node[0] == role)
            name = {"c": "cpu", "g": "gpu"}[role]
            text += f"PartitionName={name} Nodes={names} Default={'YES' if role == 'c' else 'NO'}"
            text += " MaxTime=2-00:00:00 DefaultTime=60 DefMemPerCPU=500 State=UP\n"
        (self.folder / "slurm.conf").write_text(text)
        (self.folder / "gres.conf").write_text("".join(gres))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")

    def _start(self, program, *arguments, name=""):
        command = [tool("setpriv"), "--pdeathsig=TERM", tool(program), *arguments]
        with (self.folder / f"{name or program}.out").open("ab") as log:
            self._daemons[name or program] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={**os.environ, **self.env},
            )

    def _await(self, condition, program):
        ended = lambda: [name for name, daemon in self._daemons.items() if daemon.poll() is not None]  # noqa: E731
        if until(lambda: ended() or condition(), _START_SECONDS) and not ended():
            return
        name = (ended() or [program])[0]
        said = (self.folder / f"{name}.out").read_text().splitlines()
        raise RuntimeError(f"{name} does not come up: {' | '.join(said[-3:])}")

    def ask(self, *command):
        """Runs a SLURM command and returns its output; "" if it fails."""
        done = subprocess.run(command, env={**os.environ, **self.env}, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    def states(self):
        """Maps node names to states, such as idle or down*."""
        lines = self.ask("sinfo", "--noheader", "--Node", "--format=%N %T").splitlines()
        return dict.fromkeys(NODES, "none") | dict(line.split() for line in lines)

    def jobs(self):
        """Maps the ids of unfinished jobs to (state, node, name)."""
        lines = self.ask("squeue", "--noheader", "--format=%i|%T|%N|%k").splitlines()
        return {line.split("|")[0]: tuple(line.split("|")[1:]) for line in lines}

    def start_node(self, node, first="true"):
        """Starts a node in its own mount namespace with the configuration where nodes expect it.

        first: a shell line that runs before.
        """
        # Snakemake's executor removes SLURM_CONF from the environment of a job's steps. Nodes cannot resolve
        # public host names, so downloads there fail.
        binds = f"mount --bind {self.folder} {SYSTEM} && mount --bind /dev/null /etc/resolv.conf"
        line = f"{binds} && {first} && exec {tool('slurmd')} -D -N {node}"
        self._start("unshare", "--mount", "sh", "-c", line, name=f"slurmd {node}")

    def kill_node(self, node):
        """Kills a node as a power failure would: the daemon, the steps, and the jobs' processes."""
        self._daemons[f"slurmd {node}"].kill()
        self._daemons[f"slurmd {node}"].wait()
        for _ in range(3):
            for pid in self._processes(f"SLURMD_NODENAME={node}\0", f"spool.{node}", f"slurmd.{node}.log"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def stop(self):
        """Ends the jobs, then the daemons, then all processes that are left."""
        self.ask("scancel", "--user=root")
        until(lambda: not self.jobs(), 10)
        for daemon in reversed(self._daemons.values()):
            daemon.terminate()
        for daemon in self._daemons.values():
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for pid in self._processes(f"{self.folder}/"):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not self._processes(f"{self.folder}/"), 10)

    def _processes(self, *marks):
        """Returns this cluster's processes that have one of `marks` in environment, command line or files."""

        def ours(folder):
            if int(folder.name) in (os.getpid(), os.getppid()):
                return False
            text = (folder / "environ").read_bytes() + b"\0" + (folder / "cmdline").read_bytes()
            text += b"\0".join(os.fsencode(os.readlink(link)) for link in (folder / "fd").iterdir())
            return os.fsencode(f"{self.folder}/") in text and any(os.fsencode(mark) in text for mark in marks)

        return matching(ours)


def why_not():
    """Returns the reason why no cluster can start here, or ""."""
    if os.geteuid() != 0:
        return "SLURM's daemons run jobs as their users: they need root"
    missing = [name for name in PROGRAMS if tool(name) is None]
    if missing:
        return f"no program {', '.join(missing)} (make test-full installs it)"
    return "" if Path(SYSTEM).is_dir() else f"no folder {SYSTEM}"


class NoCluster(Exception):
    """No cluster can start here. The message gives the reason."""


@contextlib.contextmanager
def running_cluster(cpus=8, further=""):
    """Runs a new cluster during the block. Raises NoCluster.

    cpus: CPUs of each node. further: lines of slurm.conf before the nodes and partitions.
    """
    if reason := why_not():
        raise NoCluster(reason)
    cluster = TestCluster(tempfile.mkdtemp(prefix="swelab-slurm-"), cpus, further)
    try:
        try:
            cluster.start()
        except (RuntimeError, OSError) as error:
            raise NoCluster(f"SLURM does not start here: {error}") from None
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)


@contextlib.contextmanager
def needed_cluster(further=""):
    """Runs a cluster for a test that needs one. Skips the test where none can run."""
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(running_cluster(further=further))
        except NoCluster as reason:
            pytest.skip(str(reason))
        yield cluster
