"""Queries a cluster through SLURM's own commands."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field

from swelab.records import Fault, shorten

PROGRAMS = ("sbatch", "squeue", "scancel", "sinfo", "scontrol", "srun")
UNLIMITED = 10**9
COMMAND_SECONDS = 30


class SlurmError(Fault):
    """A SLURM command is missing or failed. The message is one line."""


@dataclass
class Partition:
    """One partition of the cluster.

    up: whether the partition accepts jobs. minutes: time limit of a job. cpus, mem_mb, gpus: the maximum that
    one node has.
    """

    name: str
    up: bool = False
    minutes: int = UNLIMITED
    nodes: int = 0
    nodes_up: int = 0
    cpus: int = 0
    mem_mb: int = 0
    gpus: dict[str, int] = field(default_factory=dict)  # GPU type ("" if it has none) -> count


def ask(*command: str, **env: str) -> str:
    """Runs a command and returns its output. env: additional environment variables. Raises SlurmError."""
    if not shutil.which(command[0]):
        raise SlurmError(f"no program {command[0]}; expected a login node of a SLURM cluster")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_SECONDS, env={**os.environ, **env}
        )
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]} does not answer in {COMMAND_SECONDS} s") from None
    if done.returncode:
        raise SlurmError(f"{command[0]} failed: {shorten(done.stderr or done.stdout)}")
    return done.stdout


def require_controller() -> None:
    """Raises SlurmError, with advice for the user, if no SLURM controller responds."""
    try:
        ask("scontrol", "ping")
    except SlurmError as error:
        what = f"--profile slurm: no SLURM controller answers here ({error}); nothing was sent"
        raise SlurmError(f"{what}; expected a login node of a cluster, or the command without it") from None


def job_end(job: str) -> int:
    """Returns the time at which a running job will end, in seconds since 1970. Raises SlurmError."""
    answer = ask("squeue", "--noheader", f"--jobs={job}", "--format=%e", SLURM_TIME_FORMAT="%s").strip()
    if not answer.isdecimal():
        raise SlurmError(f"squeue says {answer!r} of the end of job {job}; expected seconds since 1970")
    return int(answer)


def partitions() -> dict[str, Partition]:
    """Returns the cluster's partitions, as a map from name to partition. Raises SlurmError."""
    by_name: dict[str, Partition] = {}
    for line in ask("sinfo", "--noheader", "--Node", "--format=%R|%a|%l|%c|%m|%G|%t").splitlines():
        name, state, limit, cpus, mem, gres, node = line.strip().split("|")
        part = by_name.setdefault(name, Partition(name))
        part.up, part.minutes = state == "up", minutes_of(limit)
        part.nodes += 1
        part.nodes_up += re.sub(r"[^a-z]", "", node) in ("idle", "mix", "alloc", "comp")
        part.cpus = max(part.cpus, int(cpus.rstrip("+")))
        part.mem_mb = max(part.mem_mb, int(mem.rstrip("+")))
        for kind, count in gpus_of(gres).items():
            part.gpus[kind] = max(part.gpus.get(kind, 0), count)
    return by_name


def minutes_of(limit: str) -> int:
    """Returns the minutes of a time limit in SLURM's notation, or UNLIMITED if there is none.

    See `seconds_of`.
    """
    seconds = seconds_of(limit)
    return UNLIMITED if seconds is None else seconds // 60


def seconds_of(text: str) -> int | None:
    """Returns the seconds of a time in SLURM's notation, or None for no limit.

    Examples: `30` (minutes), `30:00`, `1:30:00`, `2-00:00:00`, `1-12`. No limit is written as `infinite`,
    `UNLIMITED` or "".
    """
    if not re.fullmatch(r"(\d+-)?\d+(:\d+){0,2}", text):
        return None
    days, _, clock = text.rpartition("-")
    numbers = [int(part) for part in clock.split(":")]
    if not days and len(numbers) < 3:
        numbers.insert(0, 0)
    hours, minutes, seconds = [*numbers, 0, 0][:3]
    return ((24 * int(days or 0) + hours) * 60 + minutes) * 60 + seconds


def gpus_of(gres: str) -> dict[str, int]:
    """Returns the number of GPUs of each type in a node's resources, such as `gpu:h100:8(S:0-1),nvme:1`."""
    found: dict[str, int] = {}
    for kind, count in re.findall(r"\bgpu(?::([A-Za-z][^:,()]*))?:(\d+)", gres):
        found[kind] = found.get(kind, 0) + int(count)
    return found


def setting(name: str) -> str:
    """Returns a setting of the running controller, or "" if it has no such setting. Raises SlurmError."""
    match = re.search(rf"^{name}\s*= *(.*)$", ask("scontrol", "show", "config"), re.MULTILINE)
    return match[1].strip() if match else ""


def accounts(user: str) -> list[str]:
    """Returns the accounts that `user` may charge, or [] if the cluster has no accounts.

    Raises SlurmError.
    """
    if setting("AccountingStorageType") in ("", "accounting_storage/none", "(null)"):
        return []
    text = ask("sacctmgr", "--noheader", "--parsable2", "show", "assoc", f"user={user}", "format=account")
    return sorted(set(text.split()))


@dataclass(frozen=True)
class Node:
    """The name and address of a node."""

    name: str
    address: str


def job_nodes() -> list[Node]:
    """Returns the nodes of our own job, in their order. Raises SlurmError outside a job."""
    job = os.environ.get("SLURM_JOB_ID", "")
    listed = (
        re.search(r"^\s*NodeList=(\S+)", ask("scontrol", "show", "job", job), re.MULTILINE) if job else None
    )
    if not listed:
        raise SlurmError("several nodes, and no SLURM job; expected one (snakemake ... --profile slurm)")
    found = []
    for name in ask("scontrol", "show", "hostnames", listed[1]).split():
        address = re.search(r"\bNodeAddr=(\S+)", ask("scontrol", "show", "node", name))
        found.append(Node(name, address[1] if address else name))
    return found


def run_on_node(options: Sequence[str], command: str, seconds: int) -> str:
    """Runs a shell line on a node and returns its output.

    A node must be free within `seconds`. Raises SlurmError.
    """
    call = ["srun", "--quiet", "--ntasks=1", f"--immediate={seconds}", "--time=5", *options]
    try:
        done = subprocess.run(
            [*call, "bash", "-c", command], capture_output=True, text=True, timeout=seconds + 300
        )
    except subprocess.TimeoutExpired:
        raise SlurmError("a job that only looks at its node did not end in five minutes") from None
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if line.strip()]
        raise SlurmError(shorten(" ".join(said[-3:]) or f"srun ended with {done.returncode}"))
    return done.stdout
