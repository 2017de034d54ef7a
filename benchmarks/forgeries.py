"""Grades forged and honest repairs. No forgery may be resolved, and every honest repair must be resolved.

    .venv/bin/python -m benchmarks.forgeries [--tasks S.json ...] [--repos-dir DIR] [--backends NAME ...]
        [--times N]

Needs forged tasks with their archives (results/tasks/forge-heldout.json, drill-heldout.json). Grades each
entry of the corpus (swelab/grading/cheats/corpus) on one task. If validation has written X.witness.zip next
to X.json, patches must also answer the witness questions of their task. With --times 2 each forgery is graded
twice, because some forgeries leave the expected values in the kernel's memory for the next question. The
backend `docker` needs an engine ($DOCKER_HOST) and the sandbox image. The backend `folder` needs the unpacked
root of that image. Prints the reason for each verdict, and then totals per class. Exit code 1 if a forgery is
resolved or an honest repair is not.
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


class UnpackedImage:
    """bubblewrap on the sandbox image's unpacked root."""

    name = "folder"

    def __init__(self) -> None:
        self.backend, self.image = open_backend("bubblewrap"), recorded_image()

    def start(self, tree: Path | None, **options: Any) -> Sandbox:
        """Starts a sandbox of the image with a copy of the tree."""
        return self.backend.start(tree, image=self.image, **options)


Attempt = tuple[Entry, Task, Grade]


def attempts(
    jobs: list[tuple[Entry, Task]],
    store: RepoStore,
    backend: Backend,
    workers: int,
    checks: frozenset[str],
    witnesses: Witnesses,
    times: int,
) -> list[Attempt]:
    """Grades each entry on its task. A forgery is graded up to `times` times, until it is resolved."""

    def one(job: tuple[Entry, Task]) -> Attempt:
        entry, task = job
        witness = witnesses.of(task.instance_id)
        patch = corpus.patch_of(entry, task, store)
        for _ in range(1 if entry.kind == corpus.HONEST else times):
            result = grade(task, patch, store, backend, Limits(), checks, witness=witness)
            if result["resolved"]:
                break
        return entry, task, result

    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(one, jobs))


def show(attempts: list[Attempt]) -> int:
    """Prints each row and the totals by class; returns the number of wrong verdicts."""
    wrong = 0
    totals: Counter[tuple[str, str]] = Counter()
    standings: Counter[tuple[str, str]] = Counter()
    for entry, task, result in attempts:
        totals[entry.kind, result["status"]] += 1
        standings[entry.kind, result.witness.standing if result.witness else "not asked"] += 1
        bad = result["resolved"] != (entry.kind == corpus.HONEST)
        wrong += bad
        why = "<- wrong" if bad else result["reason"][:100]
        print(ROW.format(entry.kind, entry.name, task.function[-32:], result["status"], why))
    print()
    for kind in dict.fromkeys(entry.kind for entry, _, _ in attempts):
        standing_counts = ", ".join(
            f"{n} {word}" for (each, word), n in sorted(standings.items()) if each == kind
        )
        counts = {status: count for (each, status), count in sorted(totals.items()) if each == kind}
        print(
            f"{kind}: {sum(counts.values())} tried: "
            + ", ".join(f"{n} {s}" for s, n in counts.items())
            + f" ({standing_counts})"
        )
    return wrong


def backend_named(name: str) -> Any:
    """Opens a backend. Raises BackendMissing, ImageMissing."""
    return UnpackedImage() if name == "folder" else open_backend(name)


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
    witness_files = [path.with_suffix(".witness.zip") for path in args.tasks]
    witnesses = Witnesses(*(path for path in witness_files if path.exists()))
    wrong = 0
    with scratch_folder() as scratch:
        store = RepoStore(args.repos_dir, scratch)
        jobs = list(corpus.assign(listed, tasks))
        for name in args.backends:
            print(f"{name}: {len(jobs)} runs")
            wrong += show(
                attempts(jobs, store, backend_named(name), args.workers, checks, witnesses, args.times)
            )
    print(f"wrong_verdicts={wrong}")
    return int(wrong > 0)


if __name__ == "__main__":
    run_script(main)
