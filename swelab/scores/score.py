"""A policy's score on a benchmark, from its grading report and the benchmark's tasks."""

from collections import Counter
from collections.abc import Iterable

from swelab.grading.report import STATUSES
from swelab.records import InputError, Record, check, shorten
from swelab.scores.statistics import CONFIDENCE, wilson
from swelab.streams import Outline

GATE_FIELDS = (
    "gold_runs",
    "gold_tasks",
    "gold_resolved_each_time",
    "gold_runs_resolved",
    "kept",
    "flaky",
    "broken",
)


def rate(resolved: int, total: int) -> Record:
    """{"resolve_rate", "interval", "resolved", "total"}; rate and interval are null over no tasks."""
    if total == 0:
        return {"resolve_rate": None, "interval": None, "resolved": 0, "total": 0}
    interval = list(wilson(resolved, total))
    return {"resolve_rate": resolved / total, "interval": interval, "resolved": resolved, "total": total}


def score(tasks: Iterable[Record], report: Record, policy: str, subset: str) -> Record:
    """The score record of `policy` on `subset` (configs/schemas/score.json).

    `resolve_rate` is resolved / all tasks, SWE-bench's convention: a task lost to infrastructure
    cannot raise it. `without_infra_errors` leaves lost tasks out of both counts. `validation` is there
    when the tasks went through the gate.
    Raises InputError: no tasks, a report of other tasks, of another policy or subset, tasks
    without a grade, or counts that contradict the instances.
    """
    where = f"report of {policy} on {subset}"
    outline = Outline.of(tasks)
    total = len(outline.ids)
    if not total:
        raise InputError("no tasks", subset, "at least one task")
    check(report, "report", where)
    _check_identity(outline, report, policy, subset, where)
    instances = {name: row["status"] for name, row in sorted(report["instances"].items())}
    counts = Counter(instances.values())
    statuses = {status: counts[status] for status in STATUSES}
    _check_counts(report, statuses, total, where)
    lost = statuses["infra_error"]
    record = {
        "policy": policy,
        "subset": subset,
        "benchmark": {"name": subset, "hash": outline.digest, "size": total},
        **rate(statuses["resolved"], total),
        "confidence": CONFIDENCE,
        "infra_errors": lost,
        "without_infra_errors": rate(statuses["resolved"], total - lost),
        "statuses": statuses,
        "outcomes": dict(sorted(report.get("outcomes", {}).items())),
        "instances": instances,
    }
    if gate := report.get("validation"):
        record["validation"] = {name: gate[name] for name in GATE_FIELDS}
    check(record, "score", f"score of {policy} on {subset}")
    return record


def _check_identity(outline: Outline, report: Record, policy: str, subset: str, where: str) -> None:
    for field, expected in (("policy", policy), ("subset", subset)):
        if report[field] != expected:
            raise InputError(f"its {field} is {report[field]!r}", where, f"{expected!r}")
    known, graded = set(outline.ids), set(report["instances"])
    for ids, what in ((known - graded, "without a grade"), (graded - known, "not in the benchmark")):
        if ids:
            named = shorten(", ".join(sorted(ids)[:5]))
            raise InputError(f"{len(ids)} of {len(known | graded)} instances {what}: {named}", where)
    if report.get("tasks_digest", outline.digest) != outline.digest:
        raise InputError(
            "graded on another version of the tasks", where, f"tasks_digest {outline.digest[:12]}..."
        )


def _check_counts(report: Record, statuses: dict[str, int], size: int, where: str) -> None:
    told = {status: count for status, count in report["statuses"].items() if count or status in statuses}
    if told != statuses:
        raise InputError(f"statuses {told} contradict the instances", where, f"{statuses}")
    if report["resolved_instances"] != statuses["resolved"]:
        raise InputError(
            f"resolved_instances is {report['resolved_instances']}", where, f"{statuses['resolved']}"
        )
    kept = report.get("validation", {}).get("kept", size)
    if kept != size:
        raise InputError(f"validation kept {kept} tasks", where, f"{size}, as many as there are")
