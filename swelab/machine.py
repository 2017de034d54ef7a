"""Resources of this machine: the cores, memory, GPUs and disk that a program may use now."""

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import psutil

CGROUP = Path("/sys/fs/cgroup")
GIB = 1 << 30


@dataclass(frozen=True)
class Gpu:
    """A GPU. free and total: bytes of its memory."""

    name: str
    free: int
    total: int


@dataclass(frozen=True)
class Machine:
    """The resources of a machine. free and total: bytes of memory."""

    cores: float
    free: int
    total: int
    gpus: tuple[Gpu, ...] = ()


def this_machine() -> Machine:
    """Returns the resources of this machine, within the limits of the process's control group."""
    free, total = memory()
    return Machine(cores(), free, total, gpus())


def memory() -> tuple[int, int]:
    """Returns (free bytes, all bytes) of memory."""
    facts = psutil.virtual_memory()
    free = int(facts.available)
    if (limit := _number(CGROUP / "memory.max")) is not None:
        free = min(free, limit - (_number(CGROUP / "memory.current") or 0))
    return free, int(facts.total)


def cores() -> float:
    """Returns the number of cores that a program may use."""
    count = float(len(psutil.Process().cpu_affinity()))
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
        return min(count, int(quota) / int(period))
    except (OSError, ValueError):
        return count  # there is no limit


def gpus() -> tuple[Gpu, ...]:
    """Returns the GPUs that NVIDIA's driver lists and CUDA_VISIBLE_DEVICES does not hide.

    Empty without a driver.
    """
    query = ["--query-gpu=index,memory.free,memory.total,name", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(["nvidia-smi", *query], capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    hides = value is not None and not re.search("[A-Za-z]", value)
    visible = re.findall(r"\d+", (value or "").split("-1")[0])
    lines = re.findall(r"^(\d+), (\d+), (\d+), (.*)$", done.stdout, flags=re.M)
    return tuple(
        Gpu(name.strip(), int(free) << 20, int(total) << 20)
        for index, free, total, name in lines
        if not hides or index in visible
    )


def disk(folder: Path) -> tuple[int, Path]:
    """Returns (free bytes at a folder, the nearest existing folder). The folder need not exist yet."""
    place = folder.resolve()
    nearest = next(each for each in (place, *place.parents) if each.is_dir())
    return int(psutil.disk_usage(str(nearest)).free), nearest


def gib(size: float) -> str:
    """Formats bytes as text, such as "1.5 GiB"."""
    return f"{size / GIB:.1f} GiB"


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None
