"""What a compute node has and sees, as one line of JSON.

The doctor runs `python -m swelab.cluster.node_probe FOLDER`. FOLDER is one that the doctor made on the
shared file system. It holds `token`, and `held`, which the doctor keeps locked; the node answers in it with
a file of its own.
"""

import fcntl
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from swelab.records import Fault, shorten
from swelab.records.typed import TypedRecord, field


class NodeFacts(TypedRecord):
    """What a node has and sees. A fact about a program that may fail is why it fails, or ""."""

    node: str = field("its name")
    token: str = field("what it reads in the file `token`")
    lock_held: bool = field("whether it sees that `held` is locked")
    written: str = field("the file that it wrote in the folder; empty where it cannot write there")
    time: float = field("its clock, in seconds since 1970")
    gpus: int = field("how many the job was given")
    commands: str = field("SLURM's commands without the job's variables")
    sandbox: str = field("a command in a sandbox")
    route: bool = field("whether it has a default route")


def look(folder: Path) -> NodeFacts:
    """The facts of this node."""
    return NodeFacts(
        node=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        token=_read(folder / "token"),
        lock_held=_is_held(folder / "held"),
        written=_write(folder),
        time=time.time(),
        gpus=len(list(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")))),
        commands=_commands(),
        sandbox=sandbox_fault(),
        route=_has_route(),
    )


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _is_held(path: Path) -> bool:
    """Whether a lock that another node holds is seen here: journals rely on it."""
    try:
        with open(path, "ab") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def _write(folder: Path) -> str:
    """Name of the file that was written back; "" when that failed."""
    name = f"node-{os.environ.get('SLURM_JOB_ID', os.getpid())}"
    try:
        (folder / name).write_text("seen")
    except OSError:
        return ""
    return name


def _commands() -> str:
    """Whether SLURM's commands work here without the job's own variables: Snakemake starts its steps so."""
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    try:
        done = subprocess.run(
            ["scontrol", "ping"], env=surroundings, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return shorten(done.stdout + done.stderr) if done.returncode else ""


def sandbox_fault(name: str | None = None) -> str:
    """Why no command runs in a sandbox of a backend, by default of the one in use; "" where one does."""
    from swelab.sandbox import open_backend

    try:
        backend = open_backend(name)
        if backend.name != "bubblewrap":
            return ""  # its images are there only after they were pulled
        with tempfile.TemporaryDirectory() as tree, backend.start(Path(tree)) as sandbox:
            done = sandbox.exec("/opt/toolbox/bin/python -m pytest --version")
        return "" if done.returncode == 0 else shorten(done.output.decode(errors="replace"))
    except (Fault, OSError) as error:
        return str(error)


def _has_route() -> bool:
    """Whether this node has a default route: the least that a network beyond the cluster takes."""
    lines = _read(Path("/proc/net/route")).splitlines()[1:]
    return any(line.split()[1] == "00000000" for line in lines)


if __name__ == "__main__":
    print("probe " + json.dumps(look(Path(sys.argv[1]))))
