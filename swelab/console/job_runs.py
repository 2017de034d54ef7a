"""Records start, host and duration of each run of a workflow job, one line per run, next to the job's log.

A job that was killed and restarted has several lines. A run that was killed with SIGKILL has none.
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

    started: str = field("when, UTC")
    seconds: float = field("how long")
    cpu_seconds: float = field("of its process and of the children that it waited for", default=0.0)
    code: int = field("exit code")
    machine: Record = field("where; see `machine_record`")


def note_run(log: str, code: int) -> None:
    """Appends this process's run to the file next to `log`.

    If the file cannot be written, nothing is raised, because the job itself is sound.
    """
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
    """Describes this machine without its name: {"system", "processor", "cpus", "memory_gib", "gpus": their
    names}.

    cpus and gpus: only the ones that this process may use.
    """
    from swelab.machine import GIB, this_machine  # a pool's hosts lack psutil, and record no runs

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
    """Yields (rule, names, run) of every recorded run below a folder of logs. names: the log's path below its
    rule.

    A line that is not a record (half written on a full disk) is skipped.
    """
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
