"""CPU of a grade beside that of the bare test command, without and with the witness.

    .venv/bin/python -m benchmarks.grading_cpu [--tasks S.json] [--limit N] [--witness S.witness.zip]

Needs root, control groups that count CPU, bubblewrap, forged tasks and their archives. The CPU seconds are
those of all processes that a step started, also of those that no process waited for: a control group of
their own counts them. Of each task the gold patch is graded in turn with the bare command. Witnesses are made
first, unless validation has left them in a file.
"""

import argparse
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import fmean

from swelab.console.terminal import run_script
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import fresh_sandbox, grade
from swelab.grading.harness.spec import read_spec
from swelab.grading.validation.witness_making import make_witnesses, unpack
from swelab.grading.witness_store import KeptWitness, Witnesses
from swelab.records.task_records import Task
from swelab.sandbox import Limits, open_backend
from swelab.tasks.checkout import RepoStore, gold_patch
from swelab.tasks.task_rows import read_tasks


class Meter:
    """Counts the CPU of this process and of all that it starts, by a control group (cgroup v1 or v2)."""

    def __init__(self) -> None:
        v1 = Path("/sys/fs/cgroup/cpuacct")
        self.folder = (v1 if v1.is_dir() else Path("/sys/fs/cgroup")) / f"grading-cpu-{os.getpid()}"
        self.folder.mkdir()
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def seconds(self) -> float:
        """CPU seconds so far."""
        usage = self.folder / "cpuacct.usage"
        if usage.exists():
            return int(usage.read_text()) / 1e9
        return int((self.folder / "cpu.stat").read_text().split()[1]) / 1e6

    def close(self) -> None:
        """Leaves the group and removes it."""
        (self.folder.parent / "cgroup.procs").write_text(str(os.getpid()))
        with suppress(OSError):  # what still ends counts there
            self.folder.rmdir()


def witnesses(tasks: Iterable[Task], bench: Bench) -> dict[str, KeptWitness]:
    """The witnesses of tasks by instance id; those whose gold patch has none are not there."""
    runs = [make_witnesses([task], bench) for task in tasks]
    assert not any(run.lost for run in runs), [run.lost for run in runs]
    return {name: unpack(packed) for run in runs for name, packed in run.packed.items()}


def measure(
    tasks: Sequence[Task], bench: Bench, seconds: Callable[[], float], kept: Path | None
) -> dict[str, float]:
    """Mean CPU seconds of {"bare", "plain", "witness"}: the test command, a grade without and with it.

    kept: a file of witnesses; None: they are made.
    """
    if kept:
        found = Witnesses(kept)
        known = {name: each for name in (t.instance_id for t in tasks) if (each := found.of(name))}
    else:
        known = witnesses(tasks, bench)
    spent: dict[str, list[float]] = {"bare": [], "plain": [], "witness": []}
    backend = bench.backend
    assert backend is not None
    for task in tasks:
        gold, spec = gold_patch(bench.store, task), read_spec(task)
        start = seconds()
        with fresh_sandbox(spec, task, bench.store, backend, Limits(), None) as sandbox:
            sandbox.exec(
                spec.test_cmd, limits=Limits(wall_seconds=spec.seconds, cpu_seconds=2 * spec.seconds)
            )
        spent["bare"].append(seconds() - start)
        for name, witness in (("plain", None), ("witness", known.get(task.instance_id))):
            start = seconds()
            graded = grade(task, gold, bench.store, backend, Limits(), witness=witness)
            spent[name].append(seconds() - start)
            assert graded.resolved, (task.instance_id, graded.reason)
    return {name: fmean(each) for name, each in spent.items()}


def report(spent: dict[str, float], count: int) -> None:
    """Prints the figures."""
    for name, words in (("plain", "without the witness"), ("witness", "with the witness")):
        times = spent[name] / spent["bare"]
        print(f"CPU a grade {words}: {spent[name]:.2f} s, {times:.2f} times the bare command's")
    print(f"({spent['bare']:.2f} s with its sandbox; mean of {count} gold patches)")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=Path, default=Path("results/tasks/forge-heldout.json"))
    parser.add_argument("--repos", type=Path, default=Path("results/repos"))
    parser.add_argument("--limit", type=int, default=None, help="only the first tasks")
    parser.add_argument("--witness", type=Path, default=None, help="the witness file of the subset")
    args = parser.parse_args()
    tasks = list(read_tasks(args.tasks))[: args.limit]
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(RepoStore(args.repos, Path(scratch)), open_backend("bubblewrap"))
        meter = Meter()
        try:
            report(measure(tasks, bench, meter.seconds, args.witness), len(tasks))
        finally:
            meter.close()


if __name__ == "__main__":
    run_script(main)
