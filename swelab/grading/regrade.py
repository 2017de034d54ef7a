"""Verdicts made anew from kept runs: nothing is executed."""

from collections import Counter

from swelab.grading.archive import run_key
from swelab.grading.grade import judged
from swelab.grading.shard import LOST_ROLLOUTS, Bench, lost
from swelab.grading.spec import read_spec
from swelab.records import Record


def regrade(
    tasks: list[Record], predictions: dict[str, Record], told: dict[str, Record], bench: Bench
) -> Record:
    """{"judged", "missing", "changed", "statuses", "grades"}: the verdicts of kept runs beside those told.

    told: the grades of before, by instance id. A prediction without a kept run is missing, never guessed.
    """
    grades, missing = [], []
    for task in tasks:
        name = task["instance_id"]
        if name not in predictions:
            continue
        record = _judged(task, predictions[name], bench)
        if record is None:
            missing.append(name)
        else:
            grades.append(record)
    changed = [
        {
            "instance_id": row["instance_id"],
            "before": told[row["instance_id"]]["status"],
            "now": row["status"],
        }
        for row in grades
        if row["instance_id"] in told and told[row["instance_id"]]["status"] != row["status"]
    ]
    return {
        "judged": len(grades),
        "missing": missing,
        "changed": changed,
        "statuses": dict(sorted(Counter(row["status"] for row in grades).items())),
        "grades": grades,
    }


def _judged(task: Record, prediction: Record, bench: Bench) -> Record | None:
    outcome = prediction.get("outcome", "submitted")
    if outcome in LOST_ROLLOUTS:
        return lost(task, outcome) | {"outcome": outcome}
    patch = prediction["model_patch"] or ""
    run = bench.archive.get(run_key(task, patch, bench.place(task)))
    return judged(read_spec(task), patch, run) | {"outcome": outcome} if run else None
