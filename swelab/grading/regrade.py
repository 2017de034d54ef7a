"""Computes new verdicts from stored runs, without running anything."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from swelab.files.json_streams import RowSelection, Spool
from swelab.grading.grading_stage import Bench, lost_grade, with_own_eval
from swelab.outcomes import LOST_ROLLOUTS
from swelab.records import Record
from swelab.records.attempt_records import Grade, Prediction
from swelab.records.task_records import Task


def regrade(
    tasks: Iterable[Task], predictions: Iterable[Prediction], reasons: Mapping[str, str], bench: Bench
) -> tuple[Record, Sequence[Grade]]:
    """Returns (facts, grades): new verdicts of stored runs, compared with earlier verdicts.

    The facts are {"judged", "missing", "changed", "statuses"}. reasons: maps instance ids to the earlier
    statuses. A prediction without a stored run counts as missing. Predictions and grades are stored on disk
    to save memory.
    """
    patches, grades = Spool(), Spool()
    predicted = {row.instance_id: patches.add(row) for row in predictions}
    missing, changed, statuses = [], [], Counter[str]()
    for task in tasks:
        name = task.instance_id
        if name not in predicted:
            continue
        record = _grade_again(task, Prediction.of(patches.get(predicted[name])), bench)
        if record is None:
            missing.append(name)
            continue
        grades.add(record)
        statuses[record.status] += 1
        if reasons.get(name, record.status) != record.status:
            changed.append({"instance_id": name, "before": reasons[name], "now": record.status})
    facts = {
        "judged": len(grades),
        "missing": missing,
        "changed": changed,
        "statuses": dict(sorted(statuses.items())),
    }
    return facts, RowSelection(grades, range(len(grades)), Grade)


def _grade_again(task: Task, prediction: Prediction, bench: Bench) -> Grade | None:
    if prediction.outcome in LOST_ROLLOUTS:
        return lost_grade(task, prediction.outcome)
    patch = prediction.model_patch or ""
    run = bench.archive.get(bench.key(task, patch))
    if run is None:
        return None
    return with_own_eval(task, prediction, bench.grade_of(task, patch, run)) | {"outcome": prediction.outcome}
