"""Runs Ray's head and verl on the first node of a job, in verl's own environment.

Usage: `python -m swelab.rl.engines.verl_head NODES ADDRESS SECONDS RAY_WORDS VERL_WORDS`. RAY_WORDS and
VERL_WORDS are command lines as JSON lists. Starts the head, waits until NODES nodes have joined, and starts
verl. Exits with verl's exit code. If the head ends first or nodes are missing, prints a line and exits with
3.
"""

import json
import logging
import subprocess
import sys
import time

import ray

POLL_SECONDS = 0.5
RAY_ENDED = 3


def main() -> int:
    """Runs until verl or Ray's head ends, and returns the exit code. The other process ends with the job."""
    nodes, address, seconds, *words = sys.argv[1:]
    ray_words, verl_words = map(json.loads, words)
    head = subprocess.Popen(ray_words)
    if fault := absent(int(nodes), address, float(seconds), head):
        print(f"RayError: {fault}", flush=True)
        return RAY_ENDED
    verl = subprocess.Popen(verl_words)
    while (status := verl.poll()) is None:
        if (ended := head.poll()) is not None:
            print(f"RayError: the head of Ray ended with {ended}", flush=True)
            return RAY_ENDED
        time.sleep(POLL_SECONDS)
    return status


def absent(nodes: int, address: str, seconds: float, head: "subprocess.Popen[bytes]") -> str:
    """Waits for the nodes. Returns "" if all join in time, and otherwise a line that describes the fault."""
    deadline, there, joined = time.monotonic() + seconds, 0, False
    while time.monotonic() < deadline:
        if (ended := head.poll()) is not None:
            return f"the head of Ray ended with {ended}"
        try:
            if not joined:
                ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
                joined = True
            alive = [node["Alive"] for node in ray.nodes()]  # type: ignore[no-untyped-call]
            there = sum(map(bool, alive))
        except (ConnectionError, RuntimeError, ValueError):
            there = 0  # Ray's head does not respond yet
        if there >= nodes:
            ray.shutdown()
            return ""
        time.sleep(POLL_SECONDS)
    return f"{there} of {nodes} nodes joined Ray within {seconds:g} s"


if __name__ == "__main__":
    sys.exit(main())
