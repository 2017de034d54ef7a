"""The leaderboard's folder of each scored set, from the files behind a verified score."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

from swelab.configs import kinds
from swelab.evaluation.leaderboard import Submitted, write_submission
from swelab.grading.run_cache import Archive
from swelab.lineage import Wildcards
from swelab.outcomes import GradeEnd
from swelab.records import Record, read_records
from swelab.records.attempt_records import Grade, Trajectory
from swelab.sharing.experiment_files import Finished
from swelab.sharing.privacy import Private

RUNS = Path("results/progress/runs")


def write_submissions(finished: Finished, to: Path, private: Private) -> list[str]:
    """Writes `<subset>/<date>_<policy>` below `to`; returns why others have none."""
    reasons: list[str] = []
    policy = finished.shown
    recipe = Wildcards({"policy": policy}).recipe(kinds.POLICY)
    for record in (finished.score, *finished.score.get("others", [])):
        subset, its = record["benchmark"]["name"], record["policies"][policy]
        if finished.is_hidden(subset):
            reasons.append(f"{subset} is hidden")
        elif (recipe.samples or 1) != 1:
            reasons.append(f"{subset}: {recipe.samples} attempts at each task; the rule is pass@1")
        else:
            out = to / subset / f"{time.strftime('%Y%m%d', time.gmtime())}_{policy}"
            summary = {"model": policy, "errors": its["statuses"][GradeEnd.INFRA_ERROR]}
            summary |= {name: its[name] for name in ("resolved", "total", "resolve_rate", "interval")}
            attempts = _attempts(finished, policy, subset, private)
            write_submission(out, policy, attempts, summary, _used(recipe), {})
    return reasons


def _used(recipe: kinds.Policy) -> Record:
    name = getattr(recipe, "scaffold", None)
    scaffold = Wildcards({"scaffold": name}).recipe(kinds.SCAFFOLD) if name else None
    return {"scaffold": name or "", "step_limit": getattr(scaffold, "step_limit", "")}


def _attempts(finished: Finished, policy: str, subset: str, private: Private) -> Iterator[Submitted]:
    of, archive = {"policy": policy, "subset": subset}, Archive(RUNS)
    paths = map(Path, finished.paths("grades.grades", **of))
    grades = {grade.instance_id: grade for _, grade in read_records(paths, Grade)}
    rows = read_records(map(Path, finished.paths("trajectories.trajectories", **of)), Trajectory)
    for _, row in rows:
        grade = grades[row.instance_id]
        kept = archive.look(grade.run) if grade.run and RUNS.is_dir() else None
        plain = json.loads(private.clean(json.dumps(row)))
        log = private.clean(kept.log if kept else "")
        yield Submitted(row.instance_id, grade.status, plain["model_patch"], grade, log, plain)
