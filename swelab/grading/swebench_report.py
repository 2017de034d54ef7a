"""Builds a policy's report on a subset, in SWE-bench's report schema 2 with additional fields of ours."""

from collections import Counter
from collections.abc import Iterable

from swelab.files.json_streams import Outline
from swelab.outcomes import GradeEnd
from swelab.records import InputError, Record
from swelab.records.attempt_records import RESOLVED_BY, UNASKED, Grade
from swelab.records.report_records import Report, ReportedInstance, ReportValidation
from swelab.records.task_records import NULL_ONLY, Lock, Task

LISTS = {
    "completed_ids": (GradeEnd.RESOLVED, GradeEnd.UNRESOLVED, GradeEnd.SUSPECT, GradeEnd.TAMPERED),
    "empty_patch_ids": (GradeEnd.EMPTY_PATCH,),
    "resolved_ids": (GradeEnd.RESOLVED,),
    "unresolved_ids": (GradeEnd.UNRESOLVED, GradeEnd.SUSPECT, GradeEnd.TAMPERED),
    "error_ids": (GradeEnd.APPLY_FAILED, GradeEnd.TIMEOUT),
    "infra_failure_ids": (GradeEnd.INFRA_ERROR,),
}
"""Maps each id list of SWE-bench's report to the grades that belong in it."""


def build_report(tasks: Iterable[Task], grades: Iterable[Grade], policy: str, subset: str) -> Report:
    """Returns the report of a policy: counts and ids over all tasks of a subset.

    A task without a grade is incomplete. A report covers one sample (one attempt per task), and states the
    sample's number unless it is 0. Raises InputError if a task is not in the subset or has two grades, or if
    the grades are of several samples.
    """
    outline = Outline.of(tasks)
    task_ids = set(outline.ids)
    instances, sample = read_grades(grades, task_ids, subset)
    by_status: dict[str, list[str]] = {status: [] for status in GradeEnd}
    for name in sorted(instances):
        by_status[instances[name].status].append(name)
    lists = {field: sorted(name for end in ends for name in by_status[end]) for field, ends in LISTS.items()}
    ids = {
        "submitted_ids": sorted(instances),
        "completed_ids": lists.pop("completed_ids"),
        "incomplete_ids": sorted(task_ids - set(instances)),
        **lists,
    }
    counts = {
        f"{name.removesuffix('_ids')}_instances": len(ids[name]) for name in ids if name != "incomplete_ids"
    }
    report = {
        "total_instances": len(task_ids),
        **counts,
        **ids,
        "schema_version": 2,
        "policy": policy,
        "subset": subset,
        **({"sample": sample} if sample else {}),
        "tasks_digest": outline.digest,
        "tampered_ids": by_status[GradeEnd.TAMPERED],
        "suspect_ids": by_status[GradeEnd.SUSPECT],
        "statuses": {status: len(by_status[status]) for status in GradeEnd},
        **witness_counts(instances.values()),
        "outcomes": dict(sorted(Counter(row.outcome for row in instances.values()).items())),
        "instances": {name: instances[name] for name in sorted(instances)},
    }
    return Report.of(report)


def read_grades(
    grades: Iterable[Grade], subset_ids: set[str], subset: str
) -> tuple[dict[str, ReportedInstance], int]:
    """Returns (status and outcome by instance id, the sample to which all grades belong).

    Raises InputError.
    """
    instances: dict[str, ReportedInstance] = {}
    samples: set[int] = set()
    for row in grades:
        name = row.instance_id
        samples.add(row.sample)
        if len(samples) > 1:
            raise InputError(f"grades of samples {sorted(samples)}", subset, "grades of one sample")
        if name not in subset_ids or name in instances:
            raise InputError(
                f"{name} is {'graded twice' if name in instances else 'not of this subset'}", subset
            )
        shown = {field: row[field] for field in ("status", "outcome") if field in row}
        if row.status == GradeEnd.SUSPECT:
            shown["reason"] = row.reason
        if row.resolved and row.witness:
            shown["witness"] = row.evidence
        instances[name] = ReportedInstance.of(shown)
    return instances, max(samples, default=0)


def witness_counts(instances: Iterable[ReportedInstance]) -> Record:
    """Returns {"witness": number of resolved instances by strength of their witness evidence}.

    Returns {} if no witness question was run.
    """
    resolved = [row.witness for row in instances if row.status == GradeEnd.RESOLVED]
    if not any(resolved):
        return {}
    counts = Counter(standing or UNASKED for standing in resolved)
    return {"witness": {standing: counts[standing] for standing in RESOLVED_BY}}


def validation(lock: Lock) -> ReportValidation:
    """Returns the report's fields about the validation of its tasks: counts, and the ids of excluded
    tasks.
    """
    runs, kept_count, unjudged = lock.settings.gold_runs, len(lock.kept), len(lock.unjudged)
    null_kept = sum(row.validated == NULL_ONLY for row in lock.kept)
    valid = kept_count - lock.private - null_kept
    counts = [row.gold_resolved for row in (*lock.flaky, *lock.broken, *lock.unjudged)]
    counts = counts if runs else []
    figures = {
        "gold_runs": runs,
        "gold_tasks": lock.total - lock.private - lock.null_tasks,
        "gold_resolved_each_time": valid + sum(count == runs for count in counts),
        "gold_runs_resolved": valid * runs + sum(counts),
        "kept": kept_count,
        **({"null_tasks": lock.null_tasks, "null_kept": null_kept} if lock.null_tasks else {}),
        **({"private": lock.private} if lock.private else {}),
        "flaky": len(lock.flaky),
        "broken": len(lock.broken),
        **({"unjudged": unjudged} if unjudged else {}),
        "flaky_ids": [row.instance_id for row in lock.flaky],
        "broken_ids": [row.instance_id for row in lock.broken],
    }
    return ReportValidation.of(figures)
