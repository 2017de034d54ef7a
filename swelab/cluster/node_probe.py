"""Inspects the compute node on which it runs, and prints the result as one line of JSON.

The doctor runs `python -m swelab.cluster.node_probe FOLDER TOKEN GPUS NETWORK`. FOLDER is a folder of the
doctor on the shared file system. It has the files `token` and `lock`, and the doctor holds a lock on the file
`lock`. The node writes its answer to this folder as a file. GPUS is the number of GPUs that the job
requested. NETWORK is 1 if the job needs a network.
"""

import fcntl
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from swelab.checks.probes import sandbox_fault
from swelab.records import shorten
from swelab.records.typed import TypedRecord, field


class NodeFacts(TypedRecord):
    """The report of one compute node."""

    node: str = field("name of the node")
    faults: list[str] = field("problems to fix on the node, one sentence each")
    answer: str = field(
        "name of the file that the node wrote into the folder; empty if it cannot write there"
    )
    time: float = field("the node's clock, in seconds since 1970")


def look(folder: Path, token: str, gpus: int, network: bool) -> NodeFacts:
    """Returns the facts of this node. The module's docstring describes the arguments."""
    return NodeFacts(
        node=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        answer=_write(folder),
        time=time.time(),
        faults=list(_faults(folder, token, gpus, network)),
    )


def _faults(folder: Path, token: str, gpus: int, network: bool) -> Iterator[str]:
    here = Path.cwd()
    if _read(folder / "token") != token:
        yield f"it does not see {here}; put the clone on a shared file system"
    if not _sees_lock(folder / "lock"):
        yield f"it does not see locks held here (flock on {here}); mount it with locks"
    count = len(list(filter(None, os.environ.get("CUDA_VISIBLE_DEVICES", "").split(","))))
    if count < gpus:
        yield f"{count} GPUs were given, not {gpus}; check GRES names"
    if fault := _command_fault():
        yield f"SLURM's commands need SLURM_CONF there, which job steps lose: {fault}"
    if fault := sandbox_fault(os.environ["SWELAB_BACKEND"]):
        yield f"sandboxes do not work there: {fault}"
    routes = _read(Path("/proc/net/route")).splitlines()[1:]
    if network and not any(line.split()[1] == "00000000" for line in routes):
        yield "site.network is true, and it has no default route"


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _sees_lock(path: Path) -> bool:
    """Returns whether this node sees a file lock that another node holds. Journals rely on such locks."""
    try:
        with open(path, "ab") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def _write(folder: Path) -> str:
    """Writes the answer file and returns its name, or "" if that failed."""
    name = f"node-{os.environ.get('SLURM_JOB_ID', os.getpid())}"
    try:
        (folder / name).write_text("seen")
    except OSError:
        return ""
    return name


def _command_fault() -> str:
    """Returns why SLURM's commands fail without the job's own variables, or "" if they work.

    Snakemake starts steps without these variables.
    """
    surroundings = {name: value for name, value in os.environ.items() if not name.startswith("SLURM_")}
    try:
        done = subprocess.run(
            ["scontrol", "ping"], env=surroundings, capture_output=True, text=True, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return shorten(done.stdout + done.stderr) if done.returncode else ""


if __name__ == "__main__":
    place, token, gpus, network = sys.argv[1:]
    print("probe " + json.dumps(look(Path(place), token, int(gpus), network == "1")))
