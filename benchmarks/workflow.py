"""Measures the workflow's own cost on 50,000 instances: planning, nothing to do, orchestration, makespan.

Runs the real Snakefile, scripts and shard runner in a copy of the repository. Only agents, graders, image
pulls and training do nothing (`benchmarks/idle`). Prints tables, then one figure per line.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from benchmarks import makespan
from benchmarks.workflow_world import HELDOUT, make_world
from tests.e2e.clone import ROOT

TARGET = "results/report.html"
UNCOUNTED = {"build_repo", "make_base_model", "preflight", "train_sft"}
"""Stages whose cost does not depend on the number of instances."""


@dataclass
class Cost:
    """The cost of one command with all its children.

    wall, cpu: seconds. peak: peak resident memory in bytes.
    """

    wall: float
    cpu: float
    peak: int
    output: str


def spend(world: Path, *arguments: str, log: Path | None = None, at_once: int = 16, **variables: str) -> Cost:
    """Runs snakemake in `world`. variables: additional environment variables.

    log: file for the cost of each job. If given, agents, graders and training are idle. Raises SystemExit
    with the last lines of output if snakemake fails.
    """
    toolbox = os.environ.get("SWELAB_TOOLBOX") or str(ROOT / ".venv-sandbox")
    settings = ["experiment=scale", f"toolbox={toolbox}", f"rollouts_at_once={at_once}"]
    command = [sys.executable, "-m", "snakemake", TARGET, *arguments, "--config", *settings]
    env = {**os.environ, **variables}
    if log is not None:
        env |= {"PYTHONPATH": str(ROOT / "benchmarks" / "idle"), "SWELAB_IDLE_LOG": str(log)}
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, cwd=world, env=env, stdout=output, stderr=subprocess.STDOUT)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - start
        output.seek(0)
        text = output.read().decode(errors="replace")
    if child.returncode:
        raise SystemExit(f"snakemake {' '.join(arguments)} failed:\n{text[-3000:]}")
    return Cost(wall, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, text)


def ask_when_done(world: Path) -> Cost:
    """Measures a dry run with nothing to do.

    All outputs exist as empty files, and `--touch` has marked them as finished.
    """
    listed = spend(world, "--summary").output.splitlines()
    for name in (line.partition("\t")[0] for line in listed if line.startswith("results/")):
        path = world / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix:
            path.touch()
        else:
            path.mkdir(exist_ok=True)
    spend(world, "--touch", "--cores", "1", "--quiet", "all")
    return nothing_to_do(world)


def nothing_to_do(world: Path) -> Cost:
    """Measures a dry run. Raises SystemExit if something is left to do."""
    spent = spend(world, "-n")
    if "Nothing to be done" not in spent.output:
        raise SystemExit(f"something is left to do:\n{spent.output[-3000:]}")
    return spent


@dataclass
class Stage:
    """The cost of all jobs of one script. peak: peak memory of the largest job, in bytes."""

    jobs: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    peak: int = 0


def stages(log: Path) -> dict[str, Stage]:
    """Returns the cost of each script, from the log of its processes."""
    costs: dict[str, Stage] = defaultdict(Stage)
    for line in log.read_text().splitlines():
        job = json.loads(line)
        if job["script"].startswith("scripts."):
            stage = costs[job["script"].removeprefix("scripts.")]
            stage.jobs += 1
            stage.wall += job["wall"]
            stage.cpu += job["cpu"]
            stage.peak = max(stage.peak, job["peak_bytes"])
    return costs


@dataclass
class Whole:
    """A whole run.

    noop: the cost of the same command afterwards, with nothing left to do. page: bytes of the report.
    """

    instances: int
    spent: Cost
    noop: Cost
    stages: dict[str, Stage]
    page: int

    def milliseconds(self, seconds: str) -> float:
        """Returns wall or CPU milliseconds per instance, without the UNCOUNTED stages."""
        idle = sum(getattr(self.stages[name], seconds) for name in UNCOUNTED if name in self.stages)
        return 1000 * (getattr(self.spent, seconds) - idle) / (self.instances + 2 * HELDOUT)


def run_whole(folder: Path, instances: int, per_shard: int) -> Whole:
    """Makes a world and runs its workflow on one core. Then runs a dry run, which must find nothing to do."""
    world = make_world(folder, instances, max(1, instances // per_shard))
    log = folder / "idle.log"
    spent = spend(world, "--cores", "1", "--quiet", "all", log=log)
    return Whole(instances, spent, nothing_to_do(world), stages(log), (world / TARGET).stat().st_size)


def table(whole: Whole) -> list[str]:
    """Returns a line for each stage of a whole run."""
    lines = [f"{'stage':22s}{'jobs':>5s}{'wall s':>9s}{'CPU s':>9s}{'ms/instance':>13s}{'peak MB':>9s}"]
    for name, stage in whole.stages.items():
        each = 1000 * stage.cpu / whole.instances
        cells = f"{stage.jobs:5d}{stage.wall:9.1f}{stage.cpu:9.1f}{each:13.2f}{stage.peak / 1e6:9.0f}"
        lines.append(f"{name:22s}{cells}{'  (not counted)' if name in UNCOUNTED else ''}")
    spent = whole.spent
    lines.append(f"{'snakemake and all':22s}{'':5s}{spent.wall:9.1f}{spent.cpu:9.1f}")
    times = f"{whole.milliseconds('wall'):.1f} ms an instance, {whole.milliseconds('cpu'):.1f} of them CPU"
    done = f"nothing to do afterwards: {whole.noop.wall:.2f} s, {whole.noop.peak / 1e6:.0f} MB"
    return [*lines, f"{times}; page {whole.page / 1e6:.1f} MB; {done}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--instances", type=int, default=50_000, help="planned, and asked with nothing to do")
    parser.add_argument("--per-shard", type=int, default=250, help="instances of a shard")
    parser.add_argument("--run", type=int, nargs="+", default=[2_000, 8_000], help="sizes that are run")
    parser.add_argument("--scratch", type=Path, help="folder for the copies of the repository")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=args.scratch) as name:
        folder = Path(name)
        shards = args.instances // args.per_shard
        world = make_world(folder / "planned", args.instances, shards)
        plan = spend(world, "-n", "--quiet", "all")
        idle = ask_when_done(world)
        print(f"{args.instances:,} instances in {shards} shards")
        print(f"plan from nothing: {plan.wall:.2f} s, {plan.peak / 1e6:.0f} MB")
        print(f"nothing to do:     {idle.wall:.2f} s, {idle.peak / 1e6:.0f} MB")
        runs = []
        for size in args.run:
            runs.append(run_whole(folder / f"run{size}", size, args.per_shard))
            print(f"\n{size:,} instances, run", *table(runs[-1]), sep="\n", flush=True)
    spans = makespan.measure(20)
    print("", *makespan.table(spans), "", sep="\n")
    print(f"noop_seconds={idle.wall:.2f}")
    print(f"plan_seconds={plan.wall:.2f}")
    print(f"overhead_ms_per_instance={runs[-1].milliseconds('wall'):.2f}")
    print(f"makespan_ratio={max(span.ratio for span in spans[:-1]):.3f}")


if __name__ == "__main__":
    main()
