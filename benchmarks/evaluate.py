"""Compares a whole evaluation with mini-swe-agent's own batch runner, on equal instances and a fake model.

There are three worlds. In `instant`, the model answers at once, and sandboxes and tests take no time, so only
overhead is left. In `real`, sandboxes are real, and so are our tests. In `tail`, sandboxes are instant and
the model's latency has a long tail. Its makespan is compared with max(sum / workers, longest).
mini-swe-agent's runner does not grade.
"""

import argparse
import heapq
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.evaluate_world import make_world
from benchmarks.makespan import SEED, durations
from swelab.records import read_json, write_json, write_jsonl
from swelab.records.task_records import Task
from swelab.rollouts.mini_program import QUIET, Program, public_task

ROOT = Path(__file__).resolve().parents[1]
CONFIGS = ("swebench_backticks.yaml", str(ROOT / "swe-rl/configs/minisweagent_sglang_swebench.yaml"))
INSTANT = "benchmarks.evaluate_world.InstantEnvironment"
OURS, MINI = "scripts.evaluate", "mini-swe-agent"


@dataclass
class Run:
    """A run of one program.

    wall, cpu: seconds of the program and all its children. instances: number of processed instances.
    """

    program: str
    wall: float
    cpu: float
    instances: int

    @property
    def each(self) -> float:
        """Wall milliseconds per instance."""
        return 1000 * self.wall / self.instances


def environment(own: Path) -> dict[str, str]:
    """Returns the environment variables of a run, without any user's settings."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("SWELAB_", "MSWEA_"))
    }
    fixed = {"PYTHONPATH": str(ROOT), "OPENAI_API_KEY": "none", "MSWEA_GLOBAL_CONFIG_DIR": str(own), **QUIET}
    return inherited | fixed


@contextmanager
def model(folder: Path, seconds: dict[str, float]) -> Iterator[str]:
    """Yields the address of a fake model that spends the given seconds on each instance."""
    write_json(folder / "seconds.json", seconds)
    command = [sys.executable, "-m", "benchmarks.evaluate_model", str(folder / "seconds.json")]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def spend(program: str, command: Sequence[str], own: Path, instances: int) -> Run:
    """Runs a program. Raises SystemExit with the end of its output if it fails."""
    own.mkdir(parents=True, exist_ok=True)
    with open(own / "said", "w+b") as output:
        start = time.monotonic()
        child = subprocess.Popen(command, cwd=ROOT, env=environment(own), stdout=output, stderr=output)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - start
        if child.returncode:
            output.seek(0)
            raise SystemExit(f"{program} failed:\n{output.read().decode(errors='replace')[-3000:]}")
    return Run(program, wall, used.ru_utime + used.ru_stime, instances)


def run_ours(world: Path, tasks: Sequence[Task], url: str, workers: int, name: str, instant: bool) -> Run:
    """Runs `scripts.evaluate` on the instances."""
    module = "benchmarks.evaluate_world" if instant else OURS
    out = world / "ours" / name
    command = [sys.executable, "-m", module, "--model", "openai/fake", "--api-base", f"{url}/v1"]
    command += [
        "--data",
        str(world / "rows.jsonl"),
        "--output-dir",
        str(out),
        "--max-instances",
        str(len(tasks)),
    ]
    command += ["--repos-dir", str(world / "repos"), "--max-concurrent", str(workers)]
    run = spend(
        OURS, command + (["--images", str(world / "images.json")] if instant else []), out, len(tasks)
    )
    resolved = read_json(out / "summary.json")["resolved"]
    if resolved != len(tasks):
        raise SystemExit(f"{OURS}: {resolved} of {len(tasks)} resolved in {out}")
    return run


def run_mini(world: Path, tasks: Sequence[Task], url: str, workers: int, name: str, instant: bool) -> Run:
    """Runs mini-swe-agent's own batch runner on the instances."""
    out = world / "mini" / name
    further = ("--environment-class", INSTANT) if instant else ()
    program = Program(url, "fake", out, CONFIGS, workers, repos=world / "repos", further=further)
    write_jsonl(out / "data/test.jsonl", (public_task(task) for task in tasks))
    write_json(out / "tasks.json", list(tasks))
    run = spend(MINI, program.command(out / "data"), out / "own", len(tasks))
    submitted = sum("x = 1" in row["model_patch"] for row in read_json(out / "preds.json").values())
    if submitted != len(tasks):
        raise SystemExit(f"{MINI}: {submitted} of {len(tasks)} submitted their patch in {out}")
    return run


def at_once(folder: Path, name: str, count: int, workers: int, instant: bool) -> list[Run]:
    """Runs both programs with a model that answers immediately.

    Each program first runs on one instance only.
    """
    world = folder / name
    tasks = make_world(world, count, instant)
    with model(world, {}) as url:
        runs = []
        for program in (run_ours, run_mini):
            start = program(world, tasks[:1], url, workers, "one", instant)
            runs += [start, program(world, tasks, url, workers, "all", instant)]
    print(f"\n{name}: {count} instances, {workers} at once")
    print(
        f"{'':18s}{'wall s':>8s}{'CPU s':>8s}{'ms an instance':>16s}{'start s':>9s}{'ms without start':>18s}"
    )
    for start, whole in zip(runs[::2], runs[1::2], strict=True):
        rest = 1000 * (whole.wall - start.wall) / count
        cells = f"{whole.wall:8.1f}{whole.cpu:8.1f}{whole.each:16.1f}{start.wall:9.1f}{rest:18.1f}"
        print(f"{whole.program:18s}{cells}", flush=True)
    return runs[1::2]


def tail(folder: Path, count: int, workers: int, bound: float) -> list[float]:
    """Returns makespan / bound of three runs: ours, ours with known durations, and mini-swe-agent.

    The known durations come from an earlier evaluation.
    """
    world = folder / "tail"
    tasks = make_world(world, count, True)
    drawn = durations(count, random.Random(SEED))
    scale = bound / max(sum(drawn) / workers, max(drawn))
    seconds = {task.instance_id: value * scale for task, value in zip(tasks, drawn, strict=True)}
    with model(world, seconds) as url:
        given = (world, tasks, url, workers)
        runs = [
            run_ours(*given, "unknown", True),
            run_ours(*given, "known", True),
            run_mini(*given, "all", True),
        ]
    longest = max(seconds.values())
    print(f"\ntail: {count} instances, {workers} at once, bound {bound:.0f} s, longest {longest:.1f} s")
    names = (f"{OURS}, nothing known", f"{OURS}, times of an earlier evaluation known", MINI)
    for name, run in zip(names, runs, strict=True):
        print(f"{name:52s}{run.wall:8.1f} s {run.wall / bound:7.3f}", flush=True)
    free = in_order(list(seconds.values()), workers)
    print(f"{'no overhead at all, nothing known, this order':52s}{free:8.1f} s {free / bound:7.3f}")
    return [run.wall / bound for run in runs]


def in_order(seconds: Sequence[float], workers: int) -> float:
    """Returns the makespan if each free worker takes the next attempt.

    No makespan in this order is shorter.
    """
    free_at = [0.0] * workers
    for each in seconds:
        heapq.heapreplace(free_at, free_at[0] + each)
    return max(free_at)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--workers", type=int, default=16, help="attempts at once")
    parser.add_argument("--bound", type=float, default=120, help="seconds that the long tail is scaled to")
    parser.add_argument(
        "--worlds", nargs="+", choices=("instant", "real", "tail"), default=("instant", "real", "tail")
    )
    args = parser.parse_args()
    figures = {}
    with tempfile.TemporaryDirectory(prefix="swelab-evaluate-") as name:
        folder = Path(name)
        for world in (each for each in args.worlds if each != "tail"):
            ours, mini = at_once(folder, world, args.instances, args.workers, world == "instant")
            figures[f"{world}_ms_per_instance"] = ours.each
            figures[f"{world}_ratio_vs_mini_swe_agent"] = mini.wall / ours.wall
        if "tail" in args.worlds:
            unknown, known, mini_ratio = tail(folder, args.instances, args.workers, args.bound)
            figures |= {
                "makespan_ratio": unknown,
                "makespan_ratio_known": known,
                "makespan_ratio_mini": mini_ratio,
            }
    print("")
    for key, value in figures.items():
        print(f"{key}={value:.3f}")
    if "instant" in args.worlds:
        print(f"overhead_ms_per_instance={figures['instant_ms_per_instance']:.2f}")


if __name__ == "__main__":
    main()
