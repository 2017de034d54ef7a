"""Measures how long sandboxes take to start, exec and destroy, and what they occupy.

    .venv/bin/python -m benchmarks.sandbox_latency [--backends bubblewrap docker] [--at-once 1 8] [--rounds 4]

Prints one table for each backend and 1, 8, 32 sandboxes at once. The docker backend needs an engine
($DOCKER_HOST) and the sandbox image.
"""

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from swelab.console.terminal import run_script
from swelab.sandbox import Backend, Image, Limits, Sandbox, SandboxError, open_backend, sandbox_image
from swelab.sandbox.docker_backend import DockerSandbox
from swelab.sandbox.resource_limits import disk_bytes

Result = TypeVar("Result")

LIMITS = Limits(wall_seconds=120)
EXECS = 4
FILES, FILE_BYTES = 200, 4000  # a small repository
ROW = "{:<22} {:>7} {:<8} {:>8} {:>8} {:>8} {:>8} {:>12}"


class Series:
    """Seconds of one kind of step, and the number of failed steps. Several threads add to a series."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.failures = 0

    def measure(self, step: Callable[[], Result]) -> Result | None:
        """Runs a step and measures its time. Returns None if the step failed."""
        started = time.perf_counter()
        try:
            result = step()
        except (SandboxError, OSError):
            self.failures += 1
            return None
        self.seconds.append(time.perf_counter() - started)
        return result

    def percentile(self, share: float) -> str:
        """Formats a percentile in milliseconds."""
        if not self.seconds:
            return "-"
        ordered = sorted(self.seconds)
        return f"{1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]:.1f}"


@dataclass
class Kind:
    """A backend, and the image from which its sandboxes start, if any."""

    name: str
    backend: Backend
    image: Image | None = None

    def start(self, tree: Path) -> Sandbox:
        return self.backend.start(tree, image=self.image, limits=LIMITS)


def measure(kind: Kind, tree: Path, at_once: int, rounds: int) -> tuple[dict[str, Series], float]:
    """Measures sandboxes in `at_once` threads. Each thread makes `rounds` sandboxes, one after the other.

    A sandbox starts, runs `true` EXECS times, and is destroyed. Returns the series of each kind of step, and
    the number of sandboxes per second.
    """
    steps = {name: Series() for name in ("start", "exec", "destroy")}

    def live() -> None:
        for _ in range(rounds):
            box = steps["start"].measure(lambda: kind.start(tree))
            if box is not None:
                for _ in range(EXECS):
                    steps["exec"].measure(partial(_true, box))
                steps["destroy"].measure(box.close)

    threads = [threading.Thread(target=live) for _ in range(at_once)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return steps, len(steps["destroy"].seconds) / (time.perf_counter() - began)


def _true(box: Sandbox) -> None:
    result = box.exec("true")
    if result.returncode:
        raise SandboxError(f"true ended with {result.returncode}: {result.output!r}")


def disk_cost(kind: Kind, tree: Path) -> int:
    """Returns the KiB of memory and disk that one sandbox occupies while it exists."""
    with kind.start(tree) as box:
        if isinstance(box, DockerSandbox):
            shown = box.exec("stat -f -c '%b %f %S' /testbed /tmp ~").output.split()
            sizes = [int(word) for word in shown]
            private = sum((sizes[i] - sizes[i + 1]) * sizes[i + 2] for i in range(0, len(sizes), 3))
            listed = kind.backend.engine.api.containers(size=True)  # type: ignore[attr-defined]
            written = sum(each.get("SizeRw", 0) for each in listed if each["Id"] == box.containers()[0])
            return (private + written) >> 10
        return disk_bytes(box.folder) >> 10  # type: ignore[attr-defined]


def kinds(names: list[str]) -> Iterator[Kind]:
    """Opens the requested backends. The name `folder` means bubblewrap on the unpacked sandbox image."""
    for name in names:
        if name == "folder":
            yield Kind("bubblewrap on an image", open_backend("bubblewrap"), sandbox_image.recorded_image())
        else:
            yield Kind(name, open_backend(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", default=["bubblewrap", "folder", "docker"])
    parser.add_argument("--at-once", nargs="+", type=int, default=[1, 8, 32])
    parser.add_argument("--rounds", type=int, default=4, help="lives of each thread")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        for number in range(FILES):
            (tree / f"{number}.py").write_bytes(b"x" * FILE_BYTES)
        print(f"{os.cpu_count()} cores; a tree of {FILES} files, {disk_bytes(tree) >> 10} KiB; times in ms")
        print(ROW.format("backend", "at once", "step", "p50", "p90", "p99", "failures", "lives/s"))
        for kind in kinds(args.backends):
            kind.start(tree).close()
            for at_once in args.at_once:
                steps, rate = measure(kind, tree, at_once, args.rounds if at_once > 1 else 5 * args.rounds)
                for name, series in steps.items():
                    cells = [series.percentile(share) for share in (0.5, 0.9, 0.99)]
                    per_second = f"{rate:.1f}" if name == "start" else ""
                    print(
                        ROW.format(kind.name, at_once, name, *cells, series.failures, per_second), flush=True
                    )
            print(f"{kind.name}: one sandbox holds {disk_cost(kind, tree)} KiB while it lives", flush=True)


if __name__ == "__main__":
    run_script(main)
