"""Computes a policy's score on a benchmark from the grading report of each run and the benchmark's tasks."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import stdev

from swelab.files.json_streams import Outline, object_items
from swelab.grading.swebench_report import witness_counts
from swelab.outcomes import LOST_GRADES, GradeEnd
from swelab.records import InputError, Record, as_record, check, shorten
from swelab.records.attempt_records import Usage
from swelab.records.report_records import Report
from swelab.records.score_records import CountedRate, Detectable, Run, Score
from swelab.records.task_records import Task
from swelab.scores.statistics.multi_run import Attempts, detectable_differences, runs_differ
from swelab.scores.statistics.one_rate import CONFIDENCE, round_digits, wilson
from swelab.scores.statistics.paired_rates import POWER

GATE_FIELDS = tuple(
    """
gold_runs gold_tasks gold_resolved_each_time gold_runs_resolved kept null_tasks null_kept private flaky
broken unjudged
""".split()
)
PLANNED_RUNS = (1, 3, 5, 10)
"""Numbers of runs for which a score contains the smallest detectable difference."""

Verdicts = dict[str, list[str]]
"""Maps an instance id to its statuses, one for each run."""


def rate(resolved: int, total: int) -> CountedRate:
    """Returns the rate of resolved attempts and its interval. Both are None without attempts."""
    share, interval = (resolved / total, list(wilson(resolved, total))) if total else (None, None)
    return CountedRate(resolve_rate=share, interval=interval, resolved=resolved, total=total)


def rate_of_runs(counts: Iterable[tuple[int, int]]) -> CountedRate:
    """Like `rate`, from (resolved, attempted) of each task."""
    attempts = Attempts([pair for pair in counts if pair[1]])
    if not attempts.counts:
        return rate(0, 0)
    interval = list(attempts.interval())
    return CountedRate(
        resolve_rate=attempts.rate, interval=interval, resolved=attempts.resolved, total=attempts.total
    )


def run_to_run(counts: Iterable[tuple[int, int]], runs: int) -> Record:
    """Returns how much the rate varies from run to run while the tasks stay the same.

    "sd" is the standard deviation of one run's rate. "interval" is the interval of the mean rate of `runs`
    runs. counts: (resolved, attempted) of each task.
    """
    attempts = Attempts([pair for pair in counts if pair[1]])
    return {"sd": round_digits(attempts.run_sd), "interval": list(attempts.rerun_interval(runs))}


def count_attempts(statuses: Sequence[str], lost: bool = True) -> tuple[int, int]:
    """Returns (resolved, attempted) of a task.

    lost: whether attempts lost to infrastructure are included in `attempted`.
    """
    kept = statuses if lost else [status for status in statuses if status not in LOST_GRADES]
    return sum(status == GradeEnd.RESOLVED for status in kept), len(kept)


def score(
    tasks: Iterable[Task],
    report: Report | Sequence[Report],
    policy: str,
    subset: str,
    usage: Sequence[Record] = (),
) -> Score:
    """Returns the score record of `policy` on `subset`, from one report for each run.

    `resolve_rate` is resolved / all attempts, with one attempt for each task and run. By SWE-bench's
    convention, attempts lost to infrastructure count as not resolved. `without_infra_errors` excludes lost
    attempts from both counts. `validation` is present if the tasks were validated. usage: for each run, maps
    an instance id to its usage. Raises InputError if there are no tasks, if a report is for other tasks,
    policies, subsets or runs, if tasks have no grade, or if counts contradict the instances.
    """
    reports = [report] if isinstance(report, dict) else report
    outline, repos = Outline(), {}
    for task in tasks:
        outline.add(task)
        repos[task.instance_id] = str(task.repo_recipe or task.repo)
    if not (size := len(outline.ids)):
        raise InputError("no tasks", subset, "at least one task")
    verdicts = read_verdicts(outline, reports, policy, subset)
    statuses = Counter(status for row in verdicts.values() for status in row)
    outcomes: Counter[str] = sum((Counter(each.get("outcomes", {})) for each in reports), Counter())
    record = {
        "policy": policy,
        "subset": subset,
        "benchmark": {"name": subset, "hash": outline.digest, "size": size},
        **rate_of_runs(map(count_attempts, verdicts.values())),
        "confidence": CONFIDENCE,
        "infra_errors": statuses[GradeEnd.INFRA_ERROR],
        "without_infra_errors": rate_of_runs(count_attempts(row, lost=False) for row in verdicts.values()),
        "statuses": {status: statuses[status] for status in GradeEnd},
        **witness_counts(row for each in reports for row in each.instances.values()),
        "outcomes": dict(sorted(outcomes.items())),
        **(of_several_runs(verdicts) if len(reports) > 1 else {}),
        "detectable": detectable(verdicts),
        "repos": by_repo(verdicts, repos),
        **({"usage": total_usage(usage, statuses[GradeEnd.RESOLVED])} if usage else {}),
        "instances": verdicts if len(reports) > 1 else {name: row[0] for name, row in verdicts.items()},
    }
    if gate := reports[0].validation:
        record["validation"] = {name: gate[name] for name in GATE_FIELDS if name in gate}
    return as_record(record, Score, f"score of {policy} on {subset}")


def of_several_runs(verdicts: Verdicts) -> Record:
    """Returns the rate of each run, the spread of the runs, pass@k and pass^k. See `multi_run.Attempts`."""
    each = [Counter(statuses) for statuses in zip(*verdicts.values(), strict=True)]
    size, attempts = len(verdicts), Attempts([count_attempts(row) for row in verdicts.values()])
    rates = [run[GradeEnd.RESOLVED] / size for run in each]
    whole = [
        [status == "resolved" for status in row] for row in verdicts.values() if LOST_GRADES.isdisjoint(row)
    ]
    return {
        "runs": [
            Run(resolved=run[GradeEnd.RESOLVED], resolve_rate=share, infra_errors=run[GradeEnd.INFRA_ERROR])
            for run, share in zip(each, rates, strict=True)
        ],
        "spread": {
            "sd": round_digits(stdev(rates)),
            "expected_sd": round_digits(attempts.run_sd),
            "lowest": min(rates),
            "highest": max(rates),
            "p_value": runs_differ(whole) if whole else None,
        },
        **{
            name: {str(k): pass_at_k(attempts, k, every) for k in range(1, len(each) + 1)}
            for name, every in (("pass_at", False), ("pass_all", True))
        },
    }


def pass_at_k(attempts: Attempts, k: int, every: bool) -> Record:
    """Returns {"rate", "interval"} of pass@k, or of pass^k if `every` is true."""
    share, interval = attempts.pass_at(k, every)
    return {"rate": share, "interval": list(interval)}


def detectable(verdicts: Verdicts) -> Detectable:
    """Returns the smallest true differences from this policy that further runs would detect.
    See `multi_run.detectable_differences`."""
    attempts = Attempts([count_attempts(row) for row in verdicts.values()])
    low, high = attempts.interval()
    own = max(map(len, verdicts.values()))
    runs = sorted({*PLANNED_RUNS, own}) if attempts.within else [own]
    middle = attempts.rate if 0 < attempts.rate < 1 else (low + high) / 2
    found = {str(k): detectable_differences(middle, len(verdicts), k, attempts.within or None) for k in runs}
    limits = {k: {"same_tasks_hard": least, "unrelated": most} for k, (least, most) in found.items()}
    return Detectable.of({"power": POWER, "runs": limits})


def by_repo(verdicts: Verdicts, repos: dict[str, str]) -> Record:
    """Returns the rate for the tasks of each repository."""
    groups: dict[str, list[tuple[int, int]]] = {}
    for name, row in verdicts.items():
        groups.setdefault(repos[name], []).append(count_attempts(row))
    return {repo: {"tasks": len(groups[repo]), **rate_of_runs(groups[repo])} for repo in sorted(groups)}


def total_usage(usage: Sequence[Record], resolved: int) -> Record:
    """Returns the tokens, dollars and wall time of all attempts, in total and divided by `resolved`.

    A total is None if a part of it is unknown. A row with neither calls nor a cost is not counted, because it
    may not be an attempt.
    """
    rows = [row for run in usage for row in run.values() if row.calls or row.cost is not None]
    costs: Record = {"attempts": len(rows)}
    for name in ("prompt_tokens", "completion_tokens", "cost"):
        values = [row[name] for row in rows if row[name] is not None]
        costs[name] = sum(values) if values and len(values) == len(rows) else None
        costs[f"{name}_known"] = len(values)
    if thoughts := sum(row.reasoning_tokens or 0 for row in rows):
        costs["reasoning_tokens"] = thoughts
    tokens = (costs["prompt_tokens"], costs["completion_tokens"])
    total = None if None in tokens else sum(tokens)
    costs["tokens_per_resolved"] = total / resolved if total is not None and resolved else None
    costs["cost_per_resolved"] = costs["cost"] / resolved if costs["cost"] is not None and resolved else None
    if known := [row.seconds for row in rows if row.seconds is not None]:
        costs |= {"seconds": round(sum(known), 3), "seconds_known": len(known)}
    return costs


def read_usage(path: str | Path) -> Iterator[tuple[str, Usage]]:
    """Yields (instance id, tokens and cost) of a run. Raises InputError."""
    for name, row in object_items(path):
        yield name, as_record(row, Usage, f"{path}, {name}")


def read_verdicts(outline: Outline, reports: Sequence[Report], policy: str, subset: str) -> Verdicts:
    """Maps each instance id to its statuses, one from each report.
    Raises InputError if a report does not fit."""
    verdicts: Verdicts = {name: [] for name in sorted(outline.ids)}
    for sample, report in enumerate(reports):
        where = f"report of {policy} on {subset}" + (f", sample {sample}" if len(reports) > 1 else "")
        check(report, Report, where)
        _check_identity(outline, report, policy, subset, where)
        if report.sample != sample:
            raise InputError(
                f"it is of sample {report.get('sample', 0)}", where, "one report a sample, in order"
            )
        for name, row in report.instances.items():
            verdicts[name].append(row.status)
        counts = Counter(row.status for row in report.instances.values())
        _check_counts(report, {status: counts[status] for status in GradeEnd}, len(outline.ids), where)
    return verdicts


def _check_identity(outline: Outline, report: Report, policy: str, subset: str, where: str) -> None:
    for field, expected in (("policy", policy), ("subset", subset)):
        if report[field] != expected:
            raise InputError(f"its {field} is {report[field]!r}", where, f"{expected!r}")
    known, graded = set(outline.ids), set(report.instances)
    for ids, what in ((known - graded, "without a grade"), (graded - known, "not in the benchmark")):
        if ids:
            named = shorten(", ".join(sorted(ids)[:5]))
            raise InputError(f"{len(ids)} of {len(known | graded)} instances {what}: {named}", where)
    if report.get("tasks_digest", outline.digest) != outline.digest:
        raise InputError(
            "graded on another version of the tasks", where, f"tasks_digest {outline.digest[:12]}..."
        )


def _check_counts(report: Report, statuses: dict[str, int], size: int, where: str) -> None:
    told = {status: count for status, count in report.statuses.items() if count or status in statuses}
    if told != statuses:
        raise InputError(f"statuses {told} contradict the instances", where, f"{statuses}")
    if report.resolved_instances != statuses[GradeEnd.RESOLVED]:
        raise InputError(
            f"resolved_instances is {report.resolved_instances}", where, f"{statuses[GradeEnd.RESOLVED]}"
        )
    kept = report.get("validation", {}).get("kept", size)
    if kept != size:
        raise InputError(f"validation kept {kept} tasks", where, f"{size}, as many as there are")
