"""When, where and for how long each job of the workflow ran: one line a run, next to the job's log.

A job that was killed and started again has several lines. A run that was killed with SIGKILL has none.
"""

import json
import os
import platform
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
    machine: Record = field("where; see `machine`")


def note_run(log: str, code: int) -> None:
    """Appends this process's run to the file next to `log`.

    A file that cannot be written is no fault of the job: nothing is raised.
    """
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    row = JobRun(
        started=datetime.fromtimestamp(STARTED, UTC).isoformat(timespec="seconds"),
        seconds=round(time.time() - STARTED, 2),
        cpu_seconds=round(sum(each.ru_utime + each.ru_stime for each in used), 3),
        code=code,
        machine=machine(),
    )
    try:
        with open(log.removesuffix(".log") + SUFFIX, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
    except OSError:
        pass


@cache
def machine() -> Record:
    """This machine without its name: {"system", "processor", "cpus", "memory_gib", "gpus"}.

    cpus: those that this process may use. gpus: names of NVIDIA GPUs, from the kernel driver.
    """
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": next(_values("/proc/cpuinfo", "model name"), platform.processor()),
        "cpus": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "gpus": [
            name
            for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information"))
            for name in _values(str(path), "Model")
        ],
    }


def _values(path: str, key: str) -> Iterator[str]:
    """What stands after "key:" in each such line of a file; nothing when it cannot be read."""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    for line in lines:
        name, colon, value = line.partition(":")
        if colon and name.strip() == key:
            yield value.strip()


def read_runs(logs: Path) -> Iterator[tuple[str, list[str], JobRun]]:
    """(rule, names, run) of every run noted under a folder of logs; names are the log's path below its rule.

    A line that is no such record (half written when the disk was full) is passed over.
    """
    for path in sorted(logs.glob(f"*/**/*{SUFFIX}")):
        rule, *folders = path.relative_to(logs).parts[:-1]
        for line in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                row = JobRun.of(json.loads(line))
                datetime.fromisoformat(row.started)
                known = row.seconds >= 0 and isinstance(row.code, int) and dict(row.machine)
            except (ValueError, TypeError, KeyError, RecursionError):
                continue
            if known:
                yield rule, [*folders, path.name.removesuffix(SUFFIX)], row
