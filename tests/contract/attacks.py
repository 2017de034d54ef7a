"""What attacks on a sandbox are watched with, from the host's side."""

import os
import random
import time
from pathlib import Path

from swelab.sandbox import Limits

SHORT = Limits(wall_seconds=8, cpu_seconds=8, memory_bytes=512 << 20, processes=48)


def processes_with(token):
    """Ids of the host's processes whose command line holds `token`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if token.encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def program(pid):
    """Name of the program a process runs; "" when it has ended."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def process_count():
    return sum(name.isdigit() for name in os.listdir("/proc"))


def token():
    """A number of seconds nobody else sleeps for."""
    return f"3{random.randrange(10**6)}.{random.randrange(10**6):06}"


def text(result):
    return result.output.decode()


PATIENCE = 120.0
"""Seconds for what comes in the end: no verdict depends on how fast a machine is."""


def until(condition, seconds=5.0):
    """Wait for a condition; whether it came true."""
    ends = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > ends:
            return False
        time.sleep(0.02)
    return True


def writers(log):
    """Command line, by pid, of the processes whose output goes to `log`: sglang renames its children."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if (path / "fd/1").readlink() == log:
                found[int(path.name)] = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found
