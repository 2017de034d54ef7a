"""Compares our grading with two reference harnesses, and sandboxes with and without an engine.

    .venv/bin/python -m benchmarks.grading --swesmith-python ENV/bin/python [--tasks S.json] [--repos DIR]

Needs a container engine ($DOCKER_HOST), the sandbox image ($SWELAB_SANDBOX_IMAGE or results/images/sandbox),
forged tasks (results/tasks/forge-heldout.json) with their archives, and an environment with swesmith 0.0.9
(envs/peer.txt). All graders grade the same predictions on the same images of the same engine. Four of five
predictions repair the bug, and the fifth does not. All images exist before the runs. The time to prepare them
once for our sandboxes is printed separately. Prints a table, then the ratios of instances per minute. Exit
code 1 if a verdict differs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks import reference_images, tiny_tasks
from benchmarks.reference_images import Workload
from swelab.console.terminal import run_script
from swelab.grading.grading_stage import grade_shard
from swelab.records import Record, write_json
from swelab.records.attempt_records import Prediction
from swelab.records.task_records import Task
from swelab.sandbox import open_backend
from swelab.sandbox.docker_engine import DockerEngine
from swelab.sandbox.pulled_images import load_images
from swelab.tasks.task_rows import read_tasks

ROW = "{:<26} {:>7} {:>9} {:>8} {:>14} {:>9}"
HARNESS = Path(__file__).with_name("reference_harness.py")


@dataclass
class Run:
    """One grading of all predictions. resolved: instance ids."""

    name: str
    workers: int
    seconds: float
    graded: int
    resolved: list[str]

    @property
    def rate(self) -> float:
        """Instances a minute."""
        return 60 * self.graded / self.seconds

    def show(self) -> None:
        cells = (f"{self.seconds:.1f}", self.graded, f"{self.rate:.1f}", len(self.resolved))
        print(ROW.format(self.name, self.workers, *cells), flush=True)


def ours(
    name: str,
    tasks: list[Record],
    predictions: dict[str, Record],
    workers: int,
    repos: Path,
    images: Path | None,
    witness: Path | None = None,
) -> Run:
    """Grades with our grader and a journal, as the rule `grade` does. Each run starts without a cache."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        grades = list(
            grade_shard(
                [Task.of(row) for row in tasks],
                {name: Prediction.of(each) for name, each in predictions.items()},
                policy="p",
                subset="s",
                shard="000of001",
                repos_dir=repos,
                progress=Path(folder, "journal.jsonl"),
                workers=workers,
                images_path=images,
                witness_path=witness,
            )
        )
        seconds = time.perf_counter() - start
    for grade in grades:
        if grade["status"] not in ("resolved", "unresolved"):
            print(f"{grade['instance_id']}: {grade['status']}: {grade['reason']}", file=sys.stderr)
    resolved = sorted(grade["instance_id"] for grade in grades if grade["resolved"])
    return Run(name, workers, seconds, len(grades), resolved)


def theirs(
    harness: str,
    python: str,
    tasks: list[Record],
    predictions: dict[str, Record],
    workers: int,
    scratch: Path,
) -> Run:
    """Runs a reference harness as a process in an empty folder."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        place = Path(folder)
        write_json(place / "dataset.json", tasks)
        write_json(place / "predictions.json", predictions)
        command = [python, str(HARNESS.absolute()), harness, "--workers", str(workers)]
        command += ["--dataset", "dataset.json", "--predictions", "predictions.json", "--output", "out.json"]
        with (place / "log").open("wb") as log:
            done = subprocess.run(command, cwd=place, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        if done.returncode:
            sys.stderr.write((place / "log").read_text(errors="replace")[-3000:])
            raise SystemExit(f"{harness} ended with {done.returncode}")
        result = json.loads((place / "out.json").read_text())
    return Run(harness, workers, result["seconds"], result["graded"], result["resolved"])


def prepare(images: Path) -> None:
    """Prepares each image once for our sandboxes, as the checks of pull_images would do."""
    backend, known = open_backend(), load_images(images).values()
    start = time.perf_counter()
    for image in known:
        backend.start(None, image=image).close()
    seconds = time.perf_counter() - start
    print(f"preparing {len(known)} images for our sandboxes: {seconds:.1f} s, once an image")


def against(args: argparse.Namespace, workload: Workload, images: Path, scratch: Path) -> tuple[dict, bool]:
    """Returns a map from ratio names to ratios, and whether all verdicts agree."""
    sides = {"swebench": (sys.executable, workload.bench), "swesmith": (args.swesmith_python, workload.smith)}
    ratios, agree = {}, True
    for workers in args.workers:
        for harness in args.against:
            python, rows = sides[harness]
            predictions = workload.predictions
            run = ours(f"ours, rows of {harness}", rows, predictions, workers, scratch, images, args.witness)
            run.show()
            other = theirs(harness, python, rows, workload.predictions, workers, scratch)
            other.show()
            ratios[f"ratio_vs_{harness}" + ("" if workers == args.workers[0] else f"_at_{workers}")] = (
                run.rate / other.rate
            )
            agree &= run.resolved == other.resolved == sorted(workload.repairs)
    return ratios, agree


def backends(workers: int, scratch: Path) -> float:
    """Returns the rate with bubblewrap divided by the rate with the engine, for tests of 50 ms."""
    tiny_tasks.archive(scratch)
    rates = {}
    for name, count in (("docker", 120), ("bubblewrap", 480)):
        os.environ["SWELAB_BACKEND"] = name
        rows = tiny_tasks.rows(count, 0.05)
        open_backend()
        run = ours(f"ours, 50 ms, {name}", rows, tiny_tasks.predictions(rows), workers, scratch, None)
        run.show()
        assert len(run.resolved) == count, f"{count - len(run.resolved)} tiny tasks are not resolved"
        rates[name] = run.rate
    return rates["bubblewrap"] / rates["docker"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--swesmith-python", default="", help="interpreter that has swesmith 0.0.9")
    parser.add_argument("--tasks", type=Path, default=Path("results/tasks/forge-heldout.json"))
    parser.add_argument("--repos", type=Path, default=Path("results/repos"))
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 8])
    parser.add_argument(
        "--against", nargs="+", choices=["swebench", "swesmith"], default=["swebench", "swesmith"]
    )
    parser.add_argument("--limit", type=int, default=None, help="only the first tasks")
    parser.add_argument("--witness", type=Path, help="the tasks' witness file, which validation wrote")
    args = parser.parse_args()
    if "swesmith" in args.against and not args.swesmith_python:
        parser.error("--swesmith-python is missing; without it, --against swebench")
    os.environ["SWELAB_BACKEND"] = "docker"
    args.swesmith_python = str(Path(args.swesmith_python).absolute())
    with tempfile.TemporaryDirectory() as folder:
        scratch, engine = Path(folder), DockerEngine()
        start = time.perf_counter()
        tasks = list(read_tasks(args.tasks))[: args.limit]
        workload = reference_images.build(tasks, args.repos, scratch, engine)
        names = {row["image"] for row in workload.bench} | {row["image_name"] for row in workload.smith}
        images = reference_images.record(engine, sorted(names), scratch / "images.json")
        print(
            f"{os.cpu_count()} cores; {len(tasks)} tasks, images made in {time.perf_counter() - start:.0f} s"
        )
        prepare(images)
        print(ROW.format("grader", "workers", "seconds", "graded", "instances/min", "resolved"))
        ratios, agree = against(args, workload, images, scratch)
        ratios["ratio_bwrap_vs_docker"] = backends(args.workers[-1], scratch)
    print("verdicts are " + ("identical" if agree else "NOT identical"))
    for name, ratio in ratios.items():
        print(f"{name}={ratio:.2f}")
    return int(not agree)


if __name__ == "__main__":
    run_script(main)
