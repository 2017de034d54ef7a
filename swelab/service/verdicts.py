"""The service's report as verdicts, after it was held against what was submitted."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from swelab.outcomes import LOST_ROLLOUTS, GradeEnd, RolloutEnd
from swelab.records import InputError, Record, check, shorten
from swelab.records.task_records import Task
from swelab.service import ServiceError

STATUS = {
    "resolved": GradeEnd.RESOLVED,
    "unresolved": GradeEnd.UNRESOLVED,
    "error": GradeEnd.APPLY_FAILED,
    "failed": GradeEnd.INFRA_ERROR,
    "empty_patch": GradeEnd.EMPTY_PATCH,
}
"""Ours by the name of the service's list. `error` is a patch that the harness could not apply or run;
`failed` is an evaluation that the service lost."""

REASON = {
    "error": "the service could not apply or run it",
    "failed": "the service lost its evaluation",
}
COUNTED = (*STATUS, "submitted", "completed", "pending")


def patch_digest(prediction: Record) -> str:
    """SHA-256 of a prediction's patch; of nothing where there is none."""
    return hashlib.sha256((prediction["model_patch"] or "").encode("utf-8", "surrogatepass")).hexdigest()


def pending(report: Record) -> int:
    """How many evaluations of a run are not finished. Raises ServiceError when the report does not say."""
    count = report.get("pending_instances")
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ServiceError(f"pending_instances of the report is {shorten(repr(count))}; expected a count")
    return max(count, len(_ids(report, "pending")))


def verdicts(report: Record, submitted: Mapping[str, bool]) -> dict[str, str]:
    """The service's word on each submitted instance: a key of STATUS by id.

    `submitted` says of each whether its patch is empty. Raises ServiceError on a report that is of other
    instances, leaves one out, names one twice, whose counts are not those of its ids, that resolves an empty
    patch, or of which nothing was evaluated.
    """
    for name in COUNTED:
        _check_count(report, name)
    if report.get("total_instances", 0) < len(submitted):
        raise ServiceError(
            f"the report is of {report.get('total_instances')} tasks, {len(submitted)} were sent"
        )
    ids = set(_ids(report, "submitted"))
    _none(ids - set(submitted), "the report is of instances that were not submitted")
    _none(set(submitted) - ids, "the report does not know instances that were submitted")
    found: dict[str, str] = {}
    for name in STATUS:
        for instance in _ids(report, name):
            if instance in found and {found[instance], name} != {"unresolved", "empty_patch"}:
                raise ServiceError(f"{instance} is both {found[instance]} and {name} in the report")
            found[instance] = name
    _none(set(found) - set(submitted), "the report judges instances that were not submitted")
    _none(set(submitted) - set(found), "the report has no verdict on instances")
    _none({n for n, empty in submitted.items() if empty and found[n] == "resolved"}, "empty patches resolved")
    if submitted and set(found.values()) == {"failed"}:
        raise ServiceError(f"the service evaluated none of {len(submitted)} instances: all failed there")
    return found


def _ids(report: Record, name: str) -> list[str]:
    ids = report.get(f"{name}_ids") or []
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        raise ServiceError(
            f"{name}_ids of the report is {shorten(repr(ids))}; expected a list of instance ids"
        )
    return ids


def _check_count(report: Record, name: str) -> None:
    count: Any = report.get(f"{name}_instances", 0 if name == "empty_patch" else None)
    ids = _ids(report, name)
    optional = name in ("completed", "empty_patch") and f"{name}_ids" not in report
    if len(set(ids)) != len(ids):
        raise ServiceError(f"{name}_ids of the report names an instance twice")
    if not optional and count != len(ids):
        raise ServiceError(f"{name}_instances of the report is {count}, but it names {len(ids)}")


def _none(ids: Iterable[str], what: str) -> None:
    found = sorted(ids)
    if found:
        raise ServiceError(f"{what}: {len(found)}, such as {found[0]}")


def service_grades(
    tasks: Iterable[Task], predictions: Mapping[str, Record], record: Record, policy: str, subset: str
) -> Iterator[Record]:
    """Grade records of the predicted tasks from the record of a run at the service, in the tasks' order.

    Raises InputError when the record is of other predictions.
    """
    for task in tasks:
        name = task.instance_id
        if name not in predictions:
            continue
        outcome = predictions[name].get("outcome", RolloutEnd.SUBMITTED)
        grade: Record = {"instance_id": name, "outcome": outcome, "policy": policy, "subset": subset}
        if outcome in LOST_ROLLOUTS:
            grade |= {"status": GradeEnd.INFRA_ERROR, "reason": f"the rollout ended as {outcome}"}
        else:
            sent = record["instances"].get(name)
            if not sent or sent["patch_sha256"] != patch_digest(predictions[name]):
                raise InputError(
                    f"{name} was judged for another patch", record["run_id"], "these predictions"
                )
            grade |= _judged(sent, record["run_id"])
        grade["resolved"] = grade["status"] == GradeEnd.RESOLVED
        check(grade, "grade", f"grade of {name}")
        yield grade


def _judged(sent: Record, run_id: str) -> Record:
    word = sent["verdict"]
    empty = sent["empty"] and word != "failed"
    reason = REASON.get(word, "") if not empty else ""
    return {
        "status": GradeEnd.EMPTY_PATCH if empty else STATUS[word],
        "reason": reason,
        "patch_sha256": sent["patch_sha256"],
        "scorer": "sb-cli",
        "run_id": run_id,
    }
