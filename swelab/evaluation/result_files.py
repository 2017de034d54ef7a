"""Writes the files of an evaluation: results, predictions, report, score, and summary.json with its table."""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from swelab.evaluation.attempt_folders import ROWS
from swelab.evaluation.attempt_result import AttemptResult
from swelab.evaluation.benchmark_rows import Benchmark
from swelab.evaluation.best_of import VisibleRuns, best_of
from swelab.evaluation.evaluation_plan import Plan
from swelab.grading.swebench_report import build_report
from swelab.models.billing.ledger import sums_of
from swelab.models.billing.paid_turns import PaidRun
from swelab.models.billing.prices import NANO
from swelab.outcomes import LOST_ROLLOUTS, RETRIED_ROLLOUTS, GradeEnd, RolloutEnd
from swelab.records import Record, write_json, write_jsonl
from swelab.records.attempt_records import RESOLVED_BY
from swelab.records.score_records import Score
from swelab.records.task_records import Task
from swelab.scores.score import rate_of_runs, run_to_run, score
from swelab.tasks.hidden_tests import names_a_test

LOST = "lost to infrastructure"
SEVERAL = ("runs", "spread", "pass_at", "pass_all")
"""Fields of a score of several samples that are copied into summary.json."""


def write_results(
    plan: Plan,
    benchmark: Benchmark,
    tasks: Sequence[Task],
    done: Sequence[AttemptResult],
    minutes: float,
    runs: VisibleRuns | None = None,
) -> Record:
    """Writes all files of an evaluation from its attempts so far. Returns the content of summary.json.

    runs: results of the visible tests, used to choose one of several attempts at a task. results.jsonl and
    the predictions contain the attempts so far. Report and score are written only if every attempt has a
    grade.
    """
    order = {task.instance_id: place for place, task in enumerate(tasks)}
    mine = sorted(
        (each for each in done if each.instance_id in order and each.sample < plan.samples),
        key=lambda each: (each.sample, order[each.instance_id]),
    )
    write_jsonl(plan.folder / ROWS, (each.row() for each in mine))
    for sample in range(plan.samples):
        rows = [each for each in mine if each.sample == sample and each.grade]
        predicted = {each.instance_id: each.prediction(plan.name) for each in rows}
        write_json(plan.folder / file_name("preds", sample), predicted)
    scored = _write_score(plan, tasks, mine)
    record = summary(plan, benchmark, tasks, mine, scored, minutes)
    if scored and runs is not None and plan.samples > 1:
        record |= {"best_of": best_of(mine, runs, plan.samples)}
    write_json(plan.folder / "summary.json", record)
    return record


def file_name(stem: str, sample: int) -> str:
    """Returns the file name for one sample: <stem>.json for sample 0, <stem>.s1.json for sample 1, and so
    on."""
    return f"{stem}.s{sample}.json" if sample else f"{stem}.json"


def _write_score(plan: Plan, tasks: Sequence[Task], mine: Sequence[AttemptResult]) -> Score | None:
    """Writes report and score if every attempt has a grade. Otherwise deletes the report and score of an
    earlier run."""
    grades = [each.grade for each in mine if each.grade]
    reports = [plan.folder / file_name("report", sample) for sample in range(plan.samples)]
    if len(grades) < len(tasks) * plan.samples:
        for path in (*reports, plan.folder / "score.json"):
            path.unlink(missing_ok=True)
        return None
    sample_reports, usage = [], []
    for sample, path in enumerate(reports):
        rows = [each for each in mine if each.sample == sample]
        own = [each.grade for each in rows if each.grade]
        sample_reports.append(build_report(tasks, own, plan.name, plan.source.name))
        usage.append({each.instance_id: each.usage for each in rows})
        write_json(path, sample_reports[-1])
    record = score(tasks, sample_reports, plan.name, plan.source.name, usage)
    write_json(plan.folder / "score.json", record)
    return record


def summary(
    plan: Plan,
    benchmark: Benchmark,
    tasks: Sequence[Task],
    mine: Sequence[AttemptResult],
    scored: Score | None,
    minutes: float,
) -> Record:
    """Returns the content of summary.json: first the fields of the SWE-RL scripts, then swelab's own fields.

    `resolve_rate` counts lost attempts as not resolved, and `errors` is the number of lost attempts.
    `without_infra_errors` excludes lost attempts. `statements_naming_tests` lists task ids. `usage` covers
    the attempts in `mine`. `usage.paid` is the total cost of all requests, in dollars.
    """
    lost = [each for each in mine if each.status == GradeEnd.INFRA_ERROR]
    with_verdict = [each for each in mine if each.status != GradeEnd.INFRA_ERROR]
    return {
        **({"name": plan.label} if plan.label else {}),
        "model": plan.policy_name,
        "data": plan.source.data,
        **_as_before(mine, with_verdict),
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "args": plan.options,
        "interval": rate_of_runs(_counts(mine)).interval if _is_attempted(mine) else None,
        "without_infra_errors": dict(rate_of_runs(_counts(with_verdict))),
        "complete": scored is not None,
        "attempts_left": len(tasks) * plan.samples - sum(not each.is_paused for each in mine),
        "witness": witness_counts(plan, mine),
        "statuses": _sort_counts(Counter(each.status for each in mine if each.grade)),
        "outcomes": _sort_counts(Counter(each.outcome for each in mine)),
        "infrastructure": _sort_counts(Counter(loss(each) for each in lost)),
        "refused_rows": benchmark.refused,
        "statements_naming_tests": [task.instance_id for task in tasks if names_a_test(task)],
        "tasks": len(tasks),
        "samples": plan.samples,
        **_of_several(plan, mine, scored),
        "steps": {"most": max((each.usage.calls for each in mine), default=0)},
        "usage": _usage_totals(mine) | _dollar_totals(plan),
        "minutes": round(minutes, 1),
    }


def _is_attempted(mine: Sequence[AttemptResult]) -> bool:
    """Returns whether a policy attempted a task. Without an attempt there is no rate."""
    return any(each.outcome not in LOST_ROLLOUTS for each in mine)


def _as_before(mine: Sequence[AttemptResult], earlier: Sequence[AttemptResult]) -> Record:
    """Returns the figures of the SWE-RL scripts, with the names that these scripts use. earlier: attempts
    that were not lost."""
    total, resolved = len(mine), sum(bool(each.row()["resolved"]) for each in mine)
    times = [each.elapsed for each in mine if each.run_dir]
    return {
        "total": total,
        "resolved": resolved,
        "resolve_rate": round(resolved / total, 4) if _is_attempted(mine) else None,
        "errors": total - len(earlier),
        "no_patch": sum(not each.model_patch for each in earlier),
        "avg_steps": round(mean([each.usage.calls for each in earlier]), 2) if earlier else 0.0,
        "avg_elapsed_s": round(mean(times), 1) if times else 0.0,
    }


def _of_several(plan: Plan, mine: Sequence[AttemptResult], scored: Score | None) -> Record:
    """Returns the figures that exist only if each task has several attempts."""
    several: Record = dict(scored or {})
    found = {name: several[name] for name in SEVERAL if name in several}
    return found | ({"run_to_run": run_to_run(_counts(mine), plan.samples)} if "runs" in several else {})


def witness_counts(plan: Plan, mine: Sequence[AttemptResult]) -> Record:
    """Counts the resolved attempts by the strength of their witness evidence, and names the witness file.
    Without a witness file, all counts are None."""
    counts = Counter(each.grade.evidence for each in mine if each.grade and each.grade.resolved)
    asked = plan.witness is not None
    found: Record = {standing: counts[standing] if asked else None for standing in RESOLVED_BY}
    return {"file": plan.witness.name if plan.witness else None, **found}


def loss(done: AttemptResult) -> str:
    """Returns the cause of a lost attempt in words."""
    if done.is_final:
        return "row that cannot be used"
    if done.is_paused:
        return RolloutEnd(done.outcome).words  # type: ignore[call-arg]
    if done.is_refused or done.outcome in RETRIED_ROLLOUTS:
        return str(done.outcome)
    return "grading lost"


def _counts(rows: Sequence[AttemptResult]) -> list[tuple[int, int]]:
    """Returns (resolved attempts, all attempts) for each task."""
    found: dict[str, list[bool]] = {}
    for each in rows:
        found.setdefault(each.instance_id, []).append(bool(each.row()["resolved"]))
    return [(sum(row), len(row)) for row in found.values()]


def _sort_counts(counts: Counter[str]) -> dict[str, int]:
    return {str(name): count for name, count in counts.most_common()}


def _usage_totals(mine: Sequence[AttemptResult]) -> Record:
    """Sums calls, tokens and dollars. Also counts the attempts for which each number is known."""
    found: Record = {"calls": sum(each.usage.calls for each in mine)}
    for name in ("prompt_tokens", "completion_tokens", "cost"):
        known = [each.usage[name] for each in mine if each.usage[name] is not None]
        found[name] = round(sum(known), 6) if known else None
        found[f"{name}_known"] = len(known)
    return found


def _dollar_totals(plan: Plan) -> Record:
    """Returns the dollars of all requests in all runs, and the possible dollars of calls whose cost is
    uncertain."""
    sums = sums_of(PaidRun(plan.paid, lambda task: "").ledger)
    if not sums.calls:
        return {}
    return {"paid": round(sums.spent / NANO, 6), "paid_at_most": round(sums.unsure / NANO, 6)}


def table(record: Record) -> list[str]:
    """Formats summary.json as a Markdown table."""
    rate, rest, used = record["resolve_rate"], record["without_infra_errors"], record["usage"]
    of = f"{record['resolved']} of {record['total']}"
    share = "no rate: nothing was attempted" if rate is None else _share(rate, record["interval"] or (0, 0))
    samples = f", {record['samples']} attempts at each" if record["samples"] > 1 else ""
    rows: list[tuple[str, Any]] = [
        *([("evaluation", record["name"])] if record.get("name") else []),
        ("model", f"`{record['model']}`"),
        ("data", f"`{Path(record['data']).name}`, {record['tasks']} tasks{samples}"),
        ("resolved", f"{of}, {share}"),
    ]
    if record["errors"] and rest["interval"]:
        low, high = rest["interval"]
        text = f"{rest['resolved']} of {rest['total']}, {rest['resolve_rate']:.1%} [{low:.1%}, {high:.1%}]"
        rows.append((f"without the {record['errors']} {LOST}", text))
    rows.append(("of these witnessed", _standings(record["witness"])))
    rows += _of_samples(record)
    rows += [(f"ended as {name}", count) for name, count in record["outcomes"].items()]
    rows += [(f"graded {name}", count) for name, count in record["statuses"].items() if name != "resolved"]
    rows += [(f"lost: {name}", count) for name, count in record["infrastructure"].items()]
    if record["refused_rows"]:
        rows.append(("rows refused, not counted", len(record["refused_rows"])))
    if record["attempts_left"]:
        rows.append(("attempts left", record["attempts_left"]))
    rows += [
        ("steps", f"mean {record['avg_steps']:g}, most {record['steps']['most']}"),
        ("tokens", f"{_count(used, 'prompt_tokens')} in, {_count(used, 'completion_tokens')} out"),
        ("cost", _cost(used)),
        ("minutes", record["minutes"]),
    ]
    return ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def _of_samples(record: Record) -> list[tuple[str, str]]:
    """Returns table rows for evaluations with several attempts at each task: pass@k, pass@1 of each run,
    pass^k, best-of."""
    rows = []
    if not record.get("pass_at") and record["interval"]:
        rows.append(("pass@1", _share(record["resolve_rate"], record["interval"])))
    for k, found in (record.get("pass_at") or {}).items():
        rows.append((f"pass@{k}", _share(found["rate"], found["interval"])))
        if k == "1" and (luck := record.get("run_to_run")):
            runs = ", ".join(f"{run['resolve_rate']:.1%}" for run in record["runs"])
            low, high = luck["interval"]
            rows.append(("pass@1 from run to run", f"[{low:.1%}, {high:.1%}] on these tasks; runs {runs}"))
    for k, estimate in list((record.get("pass_all") or {}).items())[1:]:  # pass^1 is pass@1
        rows.append((f"pass^{k}", _share(estimate["rate"], estimate["interval"])))
    if best := record.get("best_of"):
        told = _share(best["resolve_rate"], best["interval"])
        by = ", ".join(f"{count} by {name.replace('_', ' ')}" for name, count in best["decided"].items())
        rows.append((f"best of {best['of']} by visible tests", f"{told}; tasks decided: {by}"))
    return rows


def _share(rate: float, interval: Sequence[float]) -> str:
    return f"{rate:.1%} [{interval[0]:.1%}, {interval[1]:.1%}]"


def _standings(totals: Record) -> str:
    if not totals["file"]:
        return "none: no witness file beside the tasks"
    return "{witnessed}; weakly {weakly_witnessed}, not {not_witnessed}".format_map(totals)


def _cost(used: Record) -> str:
    told = "not known" if used["cost"] is None else f"${used['cost']:.4f}"
    paid = used.get("paid")
    if paid is None or paid == used["cost"]:
        return told
    unsure = f", of it ${used['paid_at_most']:.4f} at most" if used["paid_at_most"] else ""
    return f"{told}; paid in all runs ${paid:.4f}{unsure}"


def _count(used: Record, name: str) -> str:
    return "not known" if used[name] is None else f"{used[name]:,.0f}"
