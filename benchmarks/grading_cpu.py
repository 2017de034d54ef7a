"""CPU of a grade beside that of the bare test command, without and with the witness.

    python -m benchmarks.grading_cpu [--tasks S.json] [--repos DIR] [--limit N]

Needs bubblewrap, forged tasks and their archives. Of each task the gold patch is graded in turn with the bare
command, so that what else the machine does falls on all alike; CPU seconds are those of all processes.
"""

import argparse
import resource
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from swelab.console.terminal import run_script
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import fresh_sandbox, grade
from swelab.grading.harness.spec import read_spec
from swelab.grading.validation.witness_making import make_witnesses, unpack
from swelab.grading.witness_store import KeptWitness
from swelab.records.task_records import Task
from swelab.sandbox import Limits, open_backend
from swelab.tasks.checkout import RepoStore, gold_patch
from swelab.tasks.task_rows import read_tasks


def seconds() -> float:
    """CPU seconds of this process and of those that it waited for."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in spent)


def witnesses(tasks: Iterable[Task], bench: Bench) -> dict[str, KeptWitness]:
    """The witnesses of tasks by instance id; those whose gold patch has none are not there."""
    runs = [make_witnesses([task], bench) for task in tasks]
    assert not any(run.lost for run in runs), [run.lost for run in runs]
    return {name: unpack(packed) for run in runs for name, packed in run.packed.items()}


def measure(tasks: Sequence[Task], bench: Bench) -> dict[str, float]:
    """Mean CPU seconds of {"bare", "plain", "witness"}: the test command, a grade without and with it."""
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
            found = grade(task, gold, bench.store, backend, Limits(), witness=witness)
            spent[name].append(seconds() - start)
            assert found.resolved, (task.instance_id, found.reason)
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
    args = parser.parse_args()
    tasks = list(read_tasks(args.tasks))[: args.limit]
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(RepoStore(args.repos, Path(scratch)), open_backend("bubblewrap"))
        report(measure(tasks, bench), len(tasks))


if __name__ == "__main__":
    run_script(main)
