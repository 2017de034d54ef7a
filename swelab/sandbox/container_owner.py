"""Describes the process that started a container, so that other processes can see whether it still runs."""

import json
import os
import socket
from pathlib import Path

from swelab.records.typed import TypedRecord, field

OWNER, RUN = "swelab.owner", "swelab.run"


def labels() -> dict[str, str]:
    """Returns the labels of containers that this process starts.

    They name the run (`this_run`) and the process.
    """
    return {OWNER: json.dumps(this_process(), sort_keys=True), RUN: this_run()}


def this_run() -> str:
    """Returns the name of this process's run: $SWELAB_RUN, by default a name made from the process."""
    me = this_process()
    return os.environ.get("SWELAB_RUN") or f"{me.host}-{me.pid}-{me.start}"


class Owner(TypedRecord):
    """Identity of a process, unique among all processes on all machines."""

    host: str = field("name of the machine")
    machine: str = field("id of the machine")
    boot: str = field("id of the machine's boot")
    space: str = field("PID namespace")
    pid: int = field("process id in that namespace")
    start: int = field("start time of the process, in ticks since boot")
    user: int = field("id of the user")


def this_process() -> Owner:
    """Returns the identity of the current process."""
    pid = os.getpid()
    return Owner(
        host=socket.gethostname(),
        machine=_text("/etc/machine-id"),
        boot=_text("/proc/sys/kernel/random/boot_id"),
        space=os.readlink("/proc/self/ns/pid"),
        pid=pid,
        start=_start_time(pid),
        user=os.getuid(),
    )


def is_gone(label: str) -> bool:
    """Returns True if the process that a label names has certainly ended. Returns False if we cannot know.

    We can only know it for processes of our user on this machine. If the machine has rebooted since, the
    process has ended. Otherwise the process must be in our pid namespace.
    """
    try:
        owner, here = Owner.of(json.loads(label)), this_process()
        if owner.user != here.user:
            return False
        if owner.boot != here.boot:
            same = (owner.host, owner.machine) == (here.host, here.machine)
            return same and bool(here.machine)
        return owner.space == here.space and _start_time(owner.pid) != owner.start
    except (ValueError, KeyError, TypeError):
        return False


def _start_time(pid: int) -> int:
    """Returns the start time of a process in ticks since boot, or 0 if it has ended or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
