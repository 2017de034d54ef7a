"""Grades predictions on the tasks of a subset file with the workflow's grader, but outside the workflow."""

import fnmatch
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swelab.grading.grading_stage import Bench, grade_shard
from swelab.grading.harness.spec import read_spec
from swelab.grading.run_cache import Archive
from swelab.grading.swesmith_reports import instance_report, run_report, write_instance
from swelab.grading.witness_store import Guard, WitnessWriter
from swelab.records import InputError, Record, write_json
from swelab.records.attempt_records import Grade, Prediction
from swelab.records.task_records import Task
from swelab.records.whole_files import atomic
from swelab.sandbox import open_backend
from swelab.tasks.checkout import RepoStore, gold_patch, scratch_folder
from swelab.tasks.datasets_source import named_rows
from swelab.tasks.task_images import task_images


@dataclass(frozen=True)
class Places:
    """The folder of repository archives, the record of pulled images, and the subset's witness file."""

    repos: Path
    images: Path | None
    witness: Path | None = None


def subset_tasks(
    data: str | Path, globs: Sequence[str], seconds: int | None, split: str = "test"
) -> list[Task]:
    """Returns the rows of `data` whose instance id matches one of `globs`, or all rows if `globs` is empty.

    data: a file, or a data set on the hub. seconds: the time limit of a task's tests, which replaces the
    limit in its row. Raises InputError, HubError.
    """
    rows = named_rows(data, split)
    chosen = [row for row in rows if not globs or any(fnmatch.fnmatch(row.instance_id, g) for g in globs)]
    if not chosen:
        raise InputError(f"no instance matches {', '.join(globs)}", data)
    for row in chosen:
        if "/" in row.instance_id or row.instance_id.startswith("."):
            raise InputError("not a folder's name", row.instance_id, "an instance id")
        if seconds:
            row["test_timeout"] = seconds
    return sorted(chosen, key=lambda row: row.instance_id)


def gold_predictions(tasks: Sequence[Task], places: Places) -> dict[str, Prediction]:
    """Returns each task's gold fix as a prediction, keyed by instance id.

    The solution of a task that a script judges is run to get the fix. Raises InputError, SandboxError,
    OSError.
    """
    scripts = [task for task in tasks if task.by_script]
    predictions = {}
    with scratch_folder() as scratch:
        backend, images = open_backend() if scripts else None, task_images(scripts, places.images)
        bench = Bench(RepoStore(places.repos, scratch), backend, images)
        for task in tasks:
            name = task.instance_id
            if task.answers and not task.solution_tar:
                raise InputError("no repair of this task is known", name, "tasks with a gold patch")
            if task.by_script:
                patch, fault = (solved := bench.solve(task)).patch, solved.fault
                if fault:
                    print(f"{name}: {fault}", file=sys.stderr)
            else:
                patch = read_spec(task).gold_fix if task.in_image else gold_patch(bench.store, task)
            predictions[name] = Prediction(instance_id=name, model_name_or_path="gold", model_patch=patch)
    return predictions


def forget(folder: Path) -> None:
    """Removes the results of an earlier run, so that everything runs again."""
    (folder / "journal.jsonl").unlink(missing_ok=True)
    shutil.rmtree(folder / "runs", ignore_errors=True)


def evaluate(
    tasks: Sequence[Task],
    predictions: Mapping[str, Prediction],
    folder: Path,
    places: Places,
    workers: int,
    guard: Guard = "whole",
) -> Record:
    """Grades predictions, and returns the report of the run.

    The report and all results are written to `folder`; `folder/runs` stores the evidence of each run. A
    prediction for an unknown task is reported and skipped. Raises InputError.
    """
    tasks_by_id = {task.instance_id: task for task in tasks}
    strangers = sorted(set(predictions) - set(tasks_by_id))
    for name in strangers:
        print(f"{name}: not in the subset", file=sys.stderr)
    mine = {name: row for name, row in predictions.items() if name in tasks_by_id}
    if not mine:
        raise InputError(f"none of {len(predictions)} predictions is for a task of the subset", folder.name)
    archive = Archive(folder / "runs")
    grades = grade_shard(
        [tasks_by_id[name] for name in sorted(mine)],
        mine,
        policy=folder.name,
        subset="by_hand",
        shard="000of001",
        repos_dir=places.repos,
        progress=folder / "journal.jsonl",
        workers=workers,
        images_path=places.images,
        runs_dir=archive.folder,
        witness_path=_reference(folder) if guard == "reference" else places.witness,
    )
    for grade in grades:
        _write_report(folder, grade, tasks_by_id[grade.instance_id], mine[grade.instance_id], archive)
    record = run_report(folder, predictions, strangers)
    write_json(folder / "report.json", record)
    return record


def _reference(folder: Path) -> Path:
    """Writes an empty witness file that makes the grader judge by the log only."""
    path = folder / "witness.zip"
    with atomic(path) as stream, WitnessWriter(stream, "reference"):
        pass
    return path


def _write_report(folder: Path, grade: Grade, task: Task, prediction: Prediction, archive: Archive) -> None:
    """Writes the report, patch and test log of an instance.

    Warns on standard error if the instance has no verdict.
    """
    report = instance_report(grade, prediction, read_spec(task).seconds)
    if report is None:
        print(f"{grade.instance_id}: no verdict: {grade.reason}", file=sys.stderr)
    log = kept.log if (kept := archive.look(grade.run)) else ""
    write_instance(folder / grade.instance_id, report, prediction.model_patch, log)
