"""Compares the service's report with the submission, and converts it to verdicts."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from swelab.outcomes import LOST_ROLLOUTS, GradeEnd
from swelab.records import InputError, Record, as_record, shorten
from swelab.records.attempt_records import Grade, Prediction
from swelab.records.task_records import Task
from swelab.records.typed import TypedRecord, field
from swelab.service import ServiceError

STATUS = {
    "resolved": GradeEnd.RESOLVED,
    "unresolved": GradeEnd.UNRESOLVED,
    "error": GradeEnd.APPLY_FAILED,
    "failed": GradeEnd.INFRA_ERROR,
    "empty_patch": GradeEnd.EMPTY_PATCH,
}
"""Maps the name of a list in the service's report to our verdict.

`error` lists patches that the harness could not apply or run. `failed` lists evaluations that the service
lost.
"""

REASON = {
    "error": "the service could not apply or run it",
    "failed": "the service lost its evaluation",
}
COUNTED = (*STATUS, "submitted", "completed", "pending")


class ServiceVerdict(TypedRecord):
    """The service's verdict on one prediction."""

    verdict: str = field("the service's word for the verdict: a key of STATUS")
    patch_sha256: str = field("hash of the patch that was sent")
    empty: bool = field("whether the patch is empty")


class ServiceRun(TypedRecord):
    """A run at the service: what was sent, and the verdicts."""

    run_id: str = field("name of the run at the service")
    subset: str = field("name of the benchmark at the service")
    split: str = field("split of the benchmark: dev or test")
    instances: dict[str, ServiceVerdict] = field("verdicts keyed by instance id")
    report: dict[str, Any] = field("the service's own report")


def patch_digest(prediction: Prediction) -> str:
    """Returns the SHA-256 of a prediction's patch, or of an empty text if there is no patch."""
    return hashlib.sha256((prediction.model_patch or "").encode("utf-8", "surrogatepass")).hexdigest()


def pending(report: Record) -> int:
    """Returns the number of unfinished evaluations of a run.

    Raises ServiceError if the report does not state the number.
    """
    count = report.get("pending_instances")
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ServiceError(f"pending_instances of the report is {shorten(repr(count))}; expected a count")
    return max(count, len(_ids(report, "pending")))


def verdicts(report: Record, submitted: Mapping[str, bool]) -> dict[str, str]:
    """Returns the service's verdict on each submitted instance, as a key of STATUS by id.

    submitted: maps instance ids to whether the patch is empty. Raises ServiceError if the report is
    impossible. Such a report has other instances, omits an instance or names it twice. Or its counts differ
    from its ids, an empty patch is resolved, or no instance is evaluated.
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
    statuses: dict[str, str] = {}
    for name in STATUS:
        for instance in _ids(report, name):
            if instance in statuses and {statuses[instance], name} != {"unresolved", "empty_patch"}:
                raise ServiceError(f"{instance} is both {statuses[instance]} and {name} in the report")
            statuses[instance] = name
    _none(set(statuses) - set(submitted), "the report judges instances that were not submitted")
    _none(set(submitted) - set(statuses), "the report has no verdict on instances")
    _none(
        {n for n, empty in submitted.items() if empty and statuses[n] == "resolved"}, "empty patches resolved"
    )
    if submitted and set(statuses.values()) == {"failed"}:
        raise ServiceError(f"the service evaluated none of {len(submitted)} instances: all failed there")
    return statuses


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
    tasks: Iterable[Task], predictions: Mapping[str, Prediction], run: ServiceRun, policy: str, subset: str
) -> Iterator[Grade]:
    """Yields the grades of the predicted tasks from a run at the service, in the order of `tasks`.

    Raises InputError if the run was made with other predictions.
    """
    for task in tasks:
        name = task.instance_id
        if name not in predictions:
            continue
        outcome = predictions[name].outcome
        facts: Record = {"instance_id": name, "outcome": outcome, "policy": policy, "subset": subset}
        if outcome in LOST_ROLLOUTS:
            facts |= {"status": GradeEnd.INFRA_ERROR, "reason": f"the rollout ended as {outcome}"}
        else:
            sent = run.instances.get(name)
            if not sent or sent.patch_sha256 != patch_digest(predictions[name]):
                raise InputError(f"{name} was judged for another patch", run.run_id, "these predictions")
            facts |= _grade_fields(sent, run.run_id)
        facts |= {"resolved": facts.get("status") == GradeEnd.RESOLVED}
        yield as_record(facts, Grade, f"grade of {name}")


def _grade_fields(sent: ServiceVerdict, run_id: str) -> Record:
    empty = sent.empty and sent.verdict != "failed"
    return {
        "status": GradeEnd.EMPTY_PATCH if empty else STATUS[sent.verdict],
        "reason": "" if empty else REASON.get(sent.verdict, ""),
        "patch_sha256": sent.patch_sha256,
        "scorer": "sb-cli",
        "run_id": run_id,
    }
