"""Forged repairs and honest ones against the grader: no forgery may be resolved, every honest fix must be.

    .venv/bin/python -m benchmarks.forgeries [--tasks S.json ...] [--repos-dir DIR] [--backends NAME ...]
        [--times N]

Needs forged tasks with their archives (results/tasks/forge-heldout.json, drill-heldout.json). Each entry of
the corpus (swelab/grading/cheats/corpus) is tried on one task. Where validation has left X.witness.zip beside
X.json, patches are asked the tasks' questions, too. With --times 2 each forgery is graded twice: some leave
the expected values in the kernel's memory for a later question. docker needs an engine ($DOCKER_HOST) and the
sandbox image, folder the image's unpacked root. Prints what stopped each, then totals by class. Exit code 1
when a forgery is resolved or an honest fix is not.
"""

import argparse
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from swelab.console.terminal import run_script
from swelab.grading.cheats import corpus
from swelab.grading.cheats.corpus import Entry
from swelab.grading.harness.grade import CHECKS, grade
from swelab.grading.witness_store import Witnesses
from swelab.records.attempt_records import Grade
from swelab.records.task_records import Task
from swelab.sandbox import Backend, Limits, Sandbox, open_backend
from swelab.sandbox.sandbox_image import recorded_image
from swelab.tasks.checkout import RepoStore, scratch_folder
from swelab.tasks.task_rows import read_tasks

TASKS = [Path(f"results/tasks/{name}-heldout.json") for name in ("forge", "drill")]
ROW = "{:<8} {:<30} {:<32} {:<12} {}"


class Unpacked:
    """bubblewrap on the sandbox image's unpacked root."""

    name = "folder"

    def __init__(self) -> None:
        self.backend, self.image = open_backend("bubblewrap"), recorded_image()

    def start(self, tree: Path | None, **options: Any) -> Sandbox:
        """A sandbox of the image with a copy of the tree."""
        return self.backend.start(tree, image=self.image, **options)


Tried = tuple[Entry, Task, Grade]


def tried(
    jobs: list[tuple[Entry, Task]],
    store: RepoStore,
    backend: Backend,
    workers: int,
    checks: frozenset[str],
    witnesses: Witnesses,
    times: int,
) -> list[Tried]:
    """The grade of each entry on its task. A forgery is graded `times` times, or until it is resolved."""

    def one(job: tuple[Entry, Task]) -> Tried:
        entry, task = job
        asked = witnesses.of(task.instance_id)
        patch = corpus.patch_of(entry, task, store)
        for _ in range(1 if entry.kind == corpus.HONEST else times):
            told = grade(task, patch, store, backend, Limits(), checks, witness=asked)
            if told["resolved"]:
                break
        return entry, task, told

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, jobs))


def show(found: list[Tried]) -> int:
    """Prints each row and the totals by class; returns the number of wrong verdicts."""
    wrong = 0
    totals: Counter[tuple[str, str]] = Counter()
    standings: Counter[tuple[str, str]] = Counter()
    for entry, task, told in found:
        totals[entry.kind, told["status"]] += 1
        standings[entry.kind, told.witness.standing if told.witness else "not asked"] += 1
        bad = told["resolved"] != (entry.kind == corpus.HONEST)
        wrong += bad
        why = "<- wrong" if bad else told["reason"][:100]
        print(ROW.format(entry.kind, entry.name, task.function[-32:], told["status"], why))
    print()
    for kind in dict.fromkeys(entry.kind for entry, _, _ in found):
        said = ", ".join(f"{n} {word}" for (each, word), n in sorted(standings.items()) if each == kind)
        told = {status: count for (each, status), count in sorted(totals.items()) if each == kind}
        print(
            f"{kind}: {sum(told.values())} tried: "
            + ", ".join(f"{n} {s}" for s, n in told.items())
            + f" ({said})"
        )
    return wrong


def opened(name: str) -> Any:
    """The backend of that name. Raises BackendMissing, ImageMissing."""
    return Unpacked() if name == "folder" else open_backend(name)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=Path, nargs="+", default=TASKS, help="subsets, JSON")
    parser.add_argument("--repos-dir", type=Path, default=Path("results/repos"))
    parser.add_argument("--backends", nargs="+", default=["bubblewrap"], help="of bubblewrap, docker, folder")
    parser.add_argument("--only", nargs="+", default=[], help="names or classes of entries")
    parser.add_argument("--limit", type=int, default=None, help="only the first entries of each class")
    parser.add_argument("--without", nargs="+", default=[], choices=sorted(CHECKS), help="checks left out")
    parser.add_argument("--times", type=int, default=1, help="how often each forgery is graded")
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    tasks = [task for path in args.tasks for task in read_tasks(path)]
    listed = corpus.entries(*corpus.FORGERIES, corpus.HONEST)
    listed = [each for each in listed if not args.only or {each.name, each.kind} & set(args.only)]
    by_kind = {kind: [each for each in listed if each.kind == kind] for kind in {e.kind for e in listed}}
    listed = [each for each in listed if each in by_kind[each.kind][: args.limit]]
    checks = CHECKS - set(args.without)
    kept = [path.with_suffix(".witness.zip") for path in args.tasks]
    witnesses = Witnesses(*(path for path in kept if path.exists()))
    wrong = 0
    with scratch_folder() as scratch:
        store = RepoStore(args.repos_dir, scratch)
        jobs = list(corpus.assigned(listed, tasks))
        for name in args.backends:
            print(f"{name}: {len(jobs)} runs")
            wrong += show(tried(jobs, store, opened(name), args.workers, checks, witnesses, args.times))
    print(f"wrong_verdicts={wrong}")
    return int(wrong > 0)


if __name__ == "__main__":
    run_script(main)
