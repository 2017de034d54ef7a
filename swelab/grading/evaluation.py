"""Predictions graded against a subset file outside the workflow, in the grader that the workflow uses."""

import fnmatch
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from swelab.grading.grading_stage import grade_shard
from swelab.grading.harness.spec import read_spec
from swelab.grading.run_cache import Archive
from swelab.grading.swesmith_reports import instance_report, run_report, write_instance
from swelab.grading.witness_store import Guard, WitnessWriter
from swelab.records import InputError, Record, write_json
from swelab.records.attempt_records import Prediction
from swelab.records.task_records import Task
from swelab.records.whole_files import atomic
from swelab.tasks.checkout import RepoStore, gold_patch, scratch_folder
from swelab.tasks.datasets_source import file_rows


@dataclass(frozen=True)
class Places:
    """Repository archives, the record of pulled images, the subset's witness file."""

    repos: Path
    images: Path | None
    witness: Path | None = None


def subset_tasks(path: Path, globs: Sequence[str], seconds: int | None) -> list[Task]:
    """The rows of a subset file (JSON list, JSON Lines, Parquet) whose id matches one of `globs`, if any.

    `seconds`: time of a task's tests, in place of what its row says. Raises InputError.
    """
    rows = file_rows(path)
    found = [row for row in rows if not globs or any(fnmatch.fnmatch(row.instance_id, g) for g in globs)]
    if not found:
        raise InputError(f"no instance matches {', '.join(globs)}", path)
    for row in found:
        if "/" in row.instance_id or row.instance_id.startswith("."):
            raise InputError("not a folder's name", row.instance_id, "an instance id")
        if seconds:
            row["test_timeout"] = seconds
    return sorted(found, key=lambda row: row.instance_id)


def gold_predictions(tasks: Sequence[Task], repos: Path) -> dict[str, Prediction]:
    """The gold fix of every task as its prediction. Raises InputError."""
    found = {}
    with scratch_folder() as scratch:
        store = RepoStore(repos, scratch)
        for task in tasks:
            name = task.instance_id
            patch = gold_patch(store, task) if task.repo_recipe else read_spec(task).gold_fix
            found[name] = Prediction(instance_id=name, model_name_or_path="gold", model_patch=patch)
    return found


def forget(folder: Path) -> None:
    """Removes the results of an earlier run, so that everything is run again."""
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
    """Grades predictions into `folder` and returns the run's report, which is written there too.

    `folder/runs` keeps what each run left, by content. Predictions of no task are named and left out. Raises
    InputError.
    """
    known = {task.instance_id: task for task in tasks}
    strangers = sorted(set(predictions) - set(known))
    for name in strangers:
        print(f"{name}: not in the subset", file=sys.stderr)
    mine = {name: row for name, row in predictions.items() if name in known}
    if not mine:
        raise InputError(f"none of {len(predictions)} predictions is for a task of the subset", folder.name)
    archive, witness = Archive(folder / "runs"), places.witness
    if guard == "reference":
        witness = folder / "witness.zip"
        with atomic(witness) as stream, WitnessWriter(stream, guard):
            pass  # it says how patches are judged, and holds no witness
    grades = grade_shard(
        [known[name] for name in sorted(mine)],
        mine,
        policy=folder.name,
        subset="by_hand",
        shard="000of001",
        repos_dir=places.repos,
        progress=folder / "journal.jsonl",
        workers=workers,
        images_path=places.images,
        runs_dir=archive.folder,
        witness_path=witness,
    )
    for grade in grades:
        name = grade.instance_id
        report = instance_report(grade, mine[name], read_spec(known[name]).seconds)
        if report is None:
            print(f"{name}: no verdict: {grade.reason}", file=sys.stderr)
        log = kept.log if (kept := archive.look(grade.run)) else ""
        write_instance(folder / name, report, mine[name].model_patch, log)
    record = run_report(folder, predictions, strangers)
    write_json(folder / "report.json", record)
    return record
