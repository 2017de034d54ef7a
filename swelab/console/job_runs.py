"""Records the start, machine and duration of each run of a workflow job, in a file next to the job's log.

Each run adds one line. A job that was killed and restarted has several lines. A run that was killed with
SIGKILL has no line.
"""

import json
import platform
import re
import resource
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from swelab.records import Record
from swelab.records.typed import TypedRecord, field

SUFFIX = ".runs.jsonl"
STARTED = time.time()


class JobRun(TypedRecord):
    """One run of a job."""

    started: str = field("start time, UTC")
    seconds: float = field("wall time in seconds")
    cpu_seconds: float = field(
        "CPU time of the process and of its finished children, in seconds", default=0.0
    )
    code: int = field("exit code")
    machine: Record = field("the machine; see `machine_record`")


def note_run(log: str, code: int) -> None:
    """Appends a record of this process to the runs file next to `log`. Errors are ignored, because the job
    itself succeeded."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    row = JobRun(
        started=datetime.fromtimestamp(STARTED, UTC).isoformat(timespec="seconds"),
        seconds=round(time.time() - STARTED, 2),
        cpu_seconds=round(sum(each.ru_utime + each.ru_stime for each in used), 3),
        code=code,
        machine=machine_record(),
    )
    try:
        with open(log.removesuffix(".log") + SUFFIX, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    except OSError:
        pass


@cache
def machine_record() -> Record:
    """Describes this machine without its name: {"system", "processor", "cpus", "memory_gib", "gpus"}. cpus:
    number of CPUs that this process may use. gpus: names of the GPUs that this process may use."""
    from swelab.machine import GIB, this_machine  # pool hosts import this module without psutil

    facts = this_machine()
    processor = re.search(r"^model name\s*:\s*(.*)$", _cpuinfo(), flags=re.M)
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor[1].strip() if processor else platform.processor(),
        "cpus": int(facts.cores) if facts.cores.is_integer() else facts.cores,
        "memory_gib": round(facts.total / GIB),
        "gpus": [gpu.name for gpu in facts.gpus],
    }


def _cpuinfo() -> str:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def read_runs(logs: Path) -> Iterator[tuple[str, list[str], JobRun]]:
    """Yields (rule, names, run) for every recorded run below the folder `logs`. names: the parts of the log's
    path below the rule's folder. An unreadable line (half written on a full disk) is skipped."""
    for path in sorted(logs.glob(f"*/**/*{SUFFIX}")):
        rule, *folders = path.relative_to(logs).parts[:-1]
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                row = JobRun.of(json.loads(line))
                datetime.fromisoformat(row.started)
                sound = row.seconds >= 0 and isinstance(row.code, int) and dict(row.machine)
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            if sound:
                yield rule, [*folders, path.name.removesuffix(SUFFIX)], row
