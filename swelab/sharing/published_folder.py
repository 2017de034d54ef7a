"""Writes everything that an experiment publishes into one folder: data set, model, leaderboard submissions,
archive."""

import json
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from swelab.configs import kinds
from swelab.evaluation.leaderboard import Submission, used_of, write_submission
from swelab.evaluation.leaderboard_claims import check_ids
from swelab.grading.run_cache import Archive
from swelab.lineage import Wildcards
from swelab.outcomes import GradeEnd
from swelab.records import InputError, Record, read_records
from swelab.records.attempt_records import Grade, Trajectory
from swelab.sharing.clone_archive import write_archive
from swelab.sharing.dataset_folder import write_dataset
from swelab.sharing.experiment_files import FinishedExperiment, read_finished
from swelab.sharing.model_folder import write_model
from swelab.sharing.privacy import Private
from swelab.tasks.hidden_tests import names_a_test
from swelab.tasks.task_rows import read_tasks

RUNS = Path("results/progress/runs")


def write_submissions(finished: FinishedExperiment, to: Path, private: Private) -> list[str]:
    """Writes `<subset>/<date>_<policy>` below `to`. Returns a reason for each subset that has no
    submission."""
    reasons: list[str] = []
    policy = finished.shown
    recipe = Wildcards({"policy": policy}).recipe(kinds.POLICY)
    for record in (finished.score, *finished.score.get("others", [])):
        subset, its = record["benchmark"]["name"], record["policies"][policy]
        tasks = [task for path in finished.paths("lock.kept", subset=subset) for task in read_tasks(path)]
        if reason := _refusal(finished, recipe, subset, (task.instance_id for task in tasks)):
            reasons.append(f"{subset}{reason}")
            continue
        out = to / subset / f"{time.strftime('%Y%m%d', time.gmtime())}_{policy}"
        summary = {"model": policy, "data": subset, "errors": its["statuses"][GradeEnd.INFRA_ERROR]}
        summary |= {name: its[name] for name in ("resolved", "total", "resolve_rate", "interval")}
        summary["statements_naming_tests"] = [task.instance_id for task in tasks if names_a_test(task)]
        attempts = _attempts(finished, policy, subset, private)
        write_submission(out, policy, attempts, summary, _scaffold_facts(recipe), {})
    return reasons


def _refusal(finished: FinishedExperiment, recipe: kinds.Policy, subset: str, ids: Iterable[str]) -> str:
    """Returns why a scored subset has no submission, or "" if it has one."""
    if finished.is_hidden(subset):
        return " is hidden"
    if (recipe.samples or 1) != 1:
        return f": {recipe.samples} attempts at each task; the rule is pass@1"
    try:
        check_ids(ids)
    except InputError as error:
        return f": {error}"
    return ""


def _scaffold_facts(recipe: kinds.Policy) -> Record:
    name = getattr(recipe, "scaffold", None)
    return used_of(name, Wildcards({"scaffold": name}).recipe(kinds.SCAFFOLD)) if name else {}


def _attempts(
    finished: FinishedExperiment, policy: str, subset: str, private: Private
) -> Iterator[Submission]:
    of, archive = {"policy": policy, "subset": subset}, Archive(RUNS)
    paths = map(Path, finished.paths("grades.grades", **of))
    grades = {grade.instance_id: grade for _, grade in read_records(paths, Grade)}
    rows = read_records(map(Path, finished.paths("trajectories.trajectories", **of)), Trajectory)
    for _, row in rows:
        grade = grades[row.instance_id]
        kept = archive.look(grade.run) if grade.run and RUNS.is_dir() else None
        plain = json.loads(private.clean(json.dumps(row)))
        log = private.clean(kept.log if kept else "")
        yield Submission(row.instance_id, grade.status, plain["model_patch"], grade, log, plain)


def write_published(score: Path, to: Path) -> list[str]:
    """Writes the folder `to` completely or not at all. Returns one line for each part that could not be made.

    Sets the working folder to the score's clone. Raises InputError if the score does not pass verification,
    the folder exists, or a file contains something that must not be published.
    """
    to = to.absolute()
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise InputError("this folder exists already", to, "a new folder")
    finished = read_finished(score.absolute())
    if to.is_relative_to(Path("results").absolute()):
        raise InputError("lies in results/", to, "a folder elsewhere: what is in results/ is made by rules")
    private, part = Private.of(Path()), to.with_name(f".{to.name}.{os.getpid()}.part")
    part.mkdir(parents=True)
    try:
        write_archive(finished, part / finished.archive, private)
        write_dataset(finished, part / "dataset", private)
        reason = write_model(finished, part / "model", private)
        missing_parts = [f"model: {reason}"] if reason else []
        missing_parts += [
            f"leaderboard: {each}" for each in write_submissions(finished, part / "leaderboard", private)
        ]
        if to.exists():
            to.rmdir()
        part.replace(to)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return missing_parts
