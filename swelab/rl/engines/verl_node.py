"""Runs a further Ray node on a node of our SLURM job. srun starts this program.

`python -m swelab.rl.engines.verl_node` reads one line of JSON. The line contains the words of `ray start`,
the head's host and port, the seconds to wait for the head, and the log's path. The program ends when its
standard input closes. The program exits with 1 if the head cannot be reached or Ray ends first.
"""

import json
import os
import select
import socket
import sys
import time
from pathlib import Path

from swelab.jobs.child_process import ChildProcess

POLL_SECONDS = 0.5


def main() -> int:
    """Runs until standard input closes or Ray ends."""
    request = json.loads(sys.stdin.readline())
    if not _can_connect(request["host"], request["port"], request["seconds"]):
        where = f"{request['host']}:{request['port']}"
        print(f"RayError: no head of Ray at {where} within {request['seconds']:g} s", file=sys.stderr)
        return 1
    with open(Path(request["log"]), "ab") as log:
        ray = ChildProcess(
            lambda private: [*request["words"], f"--temp-dir={private}/ray"],
            env=os.environ,
            log=log,
            nests=True,
        )
        try:
            while ray.poll() is None:
                if _over():
                    return 0
        finally:
            ray.stop(0)
    return 1


def _over() -> bool:
    """Returns whether the starting process closed our standard input. Waits for this up to POLL_SECONDS."""
    return bool(select.select([sys.stdin], [], [], POLL_SECONDS)[0]) and not sys.stdin.readline()


def _can_connect(host: str, port: int, seconds: float) -> bool:
    """Returns whether the head listens within `seconds`. Returns False as soon as our standard input
    closes."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not _over():
        try:
            socket.create_connection((host, port), timeout=POLL_SECONDS).close()
            return True
        except OSError:
            time.sleep(POLL_SECONDS)
    return False


if __name__ == "__main__":
    sys.exit(main())
