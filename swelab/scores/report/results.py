"""The sections of the report on the results. All external text is escaped."""

from collections import Counter
from html import escape

from swelab.files import svg_charts
from swelab.outcomes import GradeEnd, RolloutEnd
from swelab.records.attempt_records import RESOLVED_BY
from swelab.records.score_records import BenchmarkResult, Comparison
from swelab.scores.report import infrastructure_losses, intervals, reinforcement, time_and_cost, validation
from swelab.scores.report.markup import (
    OUTCOME_WORDS,
    STATUS_WORDS,
    bar_row,
    code,
    mute,
    note,
    p_value,
    points,
    policy_name,
    run_name,
    series_of,
    signed_points,
    span,
    status_words,
    table,
)
from swelab.scores.report.report_data import GROUPS, ReportData

SQUARES = 400
"""Maximum number of squares in the picture of pairs. With more tasks, a square represents several tasks."""
GROUPS_SHOWN = 60
"""Maximum number of groups in a table of resolve rates. The largest groups are shown."""
PAIR_COLUMNS = [
    *("Benchmark", "Pairs", "Gained", "Lost", "Both", "Neither"),
    *("Difference, points", "p", "Detectable"),
]
SIGNS = {"gained": "+", "lost": "\u2212", "both": "\u2713", "neither": ""}


def headline(evidence: ReportData) -> str:
    """Describes the experiment, and shows both rates and a square per task for every benchmark."""
    parts = infrastructure_losses.first_line(evidence) + f'<p class="lede">{lede(evidence)}</p>'
    for side in sides(evidence):
        test = side.comparison
        rates = "".join(big_rate(evidence, side, name) for name in (test.from_policy, test.to_policy))
        name, size = escape(side.benchmark.name), f"{side.benchmark.size:,} held-out tasks"
        parts += (
            f'<section class="bench" aria-label="{name}"><h2 class="bench-name">{name} {mute(size)}</h2>'
            f'<div class="rates">{rates}{change(test)}</div>{squares(evidence, side)}</section>'
        )
    return parts


def lede(evidence: ReportData) -> str:
    """Describes the experiment in a few sentences, as HTML."""
    test = evidence.verified.comparison
    expert = escape(evidence.label(evidence.expert))
    expert = f"A {expert}" if expert.startswith("scripted policy") else f"The policy {expert}"
    often = intervals.attempts_text(evidence, [test.from_policy, test.to_policy])
    total = sum(run.total for run in evidence.expert_runs)
    resolved = sum(run.resolved for run in evidence.expert_runs)
    several = any(run.samples > 1 for run in evidence.expert_runs)
    unit = "attempts at train tasks" if several else "train tasks"
    rows = f"{len(evidence.lengths):,} conversations" if evidence.lengths else "conversations"
    before, after = (f"<b>{escape(evidence.label(name))}</b>" for name in (test.from_policy, test.to_policy))
    tuned = evidence.compared_weights[1] == f"sft:{evidence.experiment.sft}"
    who = f"Before ({before}) and after ({after}), the model" if tuned else f"Each of {before} and {after}"
    names = [f'<b class="nowrap">{escape(side.benchmark.name)}</b>' for side in sides(evidence)]
    size = sum(side.benchmark.size for side in sides(evidence))
    return (
        f"{expert} resolved {resolved:,} of {total:,} {unit}. A base model was fine-tuned on {rows} "
        f"made from those trajectories alone.{reinforcement.sentences(evidence)} {who} attempted each of the "
        f"{size:,} held-out tasks of {' and '.join(names)} {often}.{apart(evidence)}"
    )


def apart(evidence: ReportData) -> str:
    """States that held-out and train tasks share no function or bug. Returns '' if that was not checked."""
    verdict = evidence.manifest("disjoint")
    if not verdict.get("disjoint"):
        return ""
    functions = verdict.get("heldout", {}).get("function")
    shared = "function and no bug" if functions else "bug"
    return f" The held-out tasks share no {shared} with the train tasks."


def change(test: Comparison) -> str:
    """Returns the difference of the two rates, its interval and its p-value, as HTML."""
    if test.difference is None:
        return '<p class="change">No task was graded for both policies, so there is no comparison.</p>'
    p, difference = p_value(test.p_value), signed_points(test.difference)
    equals = "" if p.startswith("&lt;") else "= "
    return (
        f'<dl class="change"><div><dt>Difference, 95% interval</dt><dd>{difference} points '
        f"{mute(span(test.interval, True))}</dd></div>"
        f"<div><dt>{intervals.test_name(test)}</dt><dd>p {equals}{p}</dd></div></dl>"
    )


def big_rate(evidence: ReportData, side: BenchmarkResult, name: str) -> str:
    """Returns a policy's rate on a benchmark, in large type."""
    policy = side.policies[name]
    unit = f" in {intervals.runs_of(policy)} runs" if intervals.runs_of(policy) > 1 else ""
    return (
        f'<div class="rate"><p class="who">{policy_name(evidence, name)}</p>'
        f'<p class="number series-text-{series_of(evidence, name)}">{points(policy.resolve_rate)}</p>'
        f'<p class="muted">{policy.resolved:,} of {policy.total:,}{unit}, '
        f'<span class="nowrap">95% {span(policy.interval)}</span></p>'
        f"{infrastructure_losses.lost_rate(policy)}</div>"
    )


def squares(evidence: ReportData, side: BenchmarkResult) -> str:
    """Draws a benchmark's paired results. A square is one task. If it is several tasks, a note says so."""
    test = side.comparison
    if not test.pairs:
        return ""
    counts = {**test.discordant, "both": test.both, "neither": test.neither}
    named = pair_words(evidence, test)
    each = max(1, -(-test.pairs // SQUARES))
    cells = "".join(
        f'<i class="{kind}">{sign}</i>' * round(counts[kind] / each) for kind, sign in SIGNS.items()
    )
    keys = "".join(
        f'<li><i class="{kind}" aria-hidden="true">{sign}</i> {counts[kind]:,} {named[kind]}</li>'
        for kind, sign in SIGNS.items()
    )
    unit = "One square is one task" if each == 1 else f"One square is about {each:,} tasks"
    out = test.excluded_infra_errors
    left = f" Tasks that one or both policies lost to infrastructure are not shown: {out:,}." if out else ""
    return (
        f'<figure class="pairs"><div class="squares" aria-hidden="true">{cells}</div>'
        f"<figcaption>{unit} of {escape(side.benchmark.name)}, attempted by both.{left}"
        f'<ul class="keys">{keys}</ul></figcaption></figure>'
    )


def pair_words(evidence: ReportData, test: Comparison) -> dict[str, str]:
    """Explains each kind of pair, as HTML. With several runs, a task counts by its resolved share."""
    before, after = (escape(evidence.label(test[side])) for side in ("from", "to"))
    several = "runs" in test
    how, also = ("more often by", "") if several else ("by", " alone")
    return {
        "gained": f"resolved {how} {after}{also}",
        "lost": f"resolved {how} {before}{also}",
        "both": "resolved as often by both" if several else "resolved by both",
        "neither": "resolved by neither",
    }


def scores(evidence: ReportData) -> str:
    """Returns the resolve rates with intervals on each benchmark, and the paired comparisons."""
    return (
        "".join(rates(evidence, side) for side in sides(evidence))
        + intervals.caveat(evidence)
        + comparison_table(evidence)
        + "".join(intervals.pairwise(side, evidence) for side in sides(evidence))
        + intervals.several_runs(evidence)
        + intervals.planning(evidence)
        + time_and_cost.costs(evidence)
    )


def sides(evidence: ReportData) -> list[BenchmarkResult]:
    """Returns the parts of the verified score for each benchmark, the headline benchmark first."""
    return [evidence.verified, *evidence.verified.others]


def rates(evidence: ReportData, side: BenchmarkResult) -> str:
    """Returns every policy's rate and interval on one benchmark."""
    rows = ""
    for name, policy in side.policies.items():
        rate, interval = policy.resolve_rate, policy.interval
        told = f"{evidence.label(name)}: {points(rate)} {span(interval)}"
        count = mute(f"{policy.resolved:,}/{policy.total:,}")
        rows += bar_row(
            policy_name(evidence, name),
            svg_charts.whisker(series_of(evidence, name), rate, (interval[0], interval[1]), told),
            f'<span class="nowrap"><b>{points(rate)}</b> {span(interval)}</span> {count}',
        )
    several = any(intervals.runs_of(policy) > 1 for policy in side.policies.values())
    kind = "interval over tasks and runs" if several else "Wilson interval"
    axis = bar_row("", svg_charts.share_axis(f"resolve rate, %, with 95% {kind}"), "")
    benchmark = side.benchmark
    size = mute(f"{benchmark.size:,} tasks, set {code(benchmark.hash[:12])}")
    return (
        f'<h3>{escape(benchmark.name)} {size}</h3><div class="bars short">{rows}{axis}</div>'
        f"{infrastructure_losses.lost_note(side, evidence)}{validation.sentence(evidence, benchmark.name)}"
    )


def comparison_table(evidence: ReportData) -> str:
    """Returns a table of the paired tests of all benchmarks."""
    rows = []
    for side in sides(evidence):
        test, moved = side.comparison, side.comparison.discordant
        difference, smallest = test.difference, test.minimum_detectable_difference
        counts = (test.pairs, moved.gained, moved.lost, test.both, test.neither)
        rows.append(
            [
                escape(side.benchmark.name),
                *(f"{count:,}" for count in counts),
                "n/a" if difference is None else f"{signed_points(difference)} {span(test.interval, True)}",
                p_value(test.p_value),
                "n/a" if smallest is None else f"{100 * smallest:.1f}",
            ]
        )
    test = evidence.verified.comparison
    first, second = evidence.label(test.from_policy), evidence.label(test.to_policy)
    return table(PAIR_COLUMNS, rows, f"From {first} to {second}, on the same tasks") + note(
        f"p: {escape(test.methods.test)}. Interval: {escape(test.methods.interval)}. "
        f"Detectable: {test.power:.0%} of such experiments find a true difference of this size, if as many "
        "tasks differ between the policies as here."
    )


def outcomes(evidence: ReportData) -> str:
    """Returns bars and a table of every run's verdicts, and a table of how rollouts ended."""
    rows = ""
    for run in evidence.runs:
        counts: dict[str, int] = {status: run.report.statuses.get(status, 0) for status in GradeEnd}
        told = ", ".join(f"{status_words(status)} {count:,}" for status, count in counts.items())
        title = f"{evidence.label(run.policy)} on {run.subset}: {told}"
        rows += bar_row(
            run_name(evidence, run),
            svg_charts.stacked_bar(counts, title, names=STATUS_WORDS),
            f"{run.resolved:,}/{run.total:,} resolved",
        )
    keys = "".join(
        f"<li>{svg_charts.legend_swatch(f'status-{status}')} {status_words(status)}</li>"
        for status in GradeEnd
    )
    axis = bar_row("", svg_charts.share_axis("share of attempts, %"), "")
    found = {name for run in evidence.runs for name in run.report.get("outcomes", {})}
    ends = sorted(found, key=lambda name: (name != RolloutEnd.SUBMITTED, name))
    return (
        f'<ul class="keys">{keys}</ul><div class="bars">{rows}{axis}</div>'
        + count_table(evidence, "statuses", STATUS_WORDS, list(GradeEnd), "Verdicts, by attempts")
        + resolved_by(evidence)
        + infrastructure_losses.both_rates(evidence)
        + count_table(evidence, "outcomes", OUTCOME_WORDS, ends, "Why rollouts ended, by attempts")
    )


def resolved_by(evidence: ReportData) -> str:
    """Returns a table of the evidence for resolved attempts, or '' if witness questions were not run."""
    if not any(run.report.witness for run in evidence.runs):
        return ""
    words = {str(name): name.replace("_", " ") for name in RESOLVED_BY}
    return count_table(evidence, "witness", words, list(words), "Evidence of resolved attempts")


def count_table(
    evidence: ReportData, field: str, words: dict[str, str], names: list[str], caption: str
) -> str:
    """Returns a table with the counts in one field of every run's report."""
    rows = [
        [run_name(evidence, run), *(f"{run.report.get(field, {}).get(name, 0):,}" for name in names)]
        for run in evidence.runs
    ]
    head = [escape(words.get(name, name.replace("_", " "))) for name in names]
    return table(["Run", *head], rows, caption)


def breakdown(evidence: ReportData) -> str:
    """Returns resolve rates by mutation operator and by repository, for every benchmark."""
    parts = "".join(group_table(evidence, field, title) for field, title in GROUPS.items())
    remark = infrastructure_losses.group_note([run for run in evidence.runs if run.scored])
    return parts + remark if parts else note("The tasks name neither operators nor repositories.")


def group_table(evidence: ReportData, field: str, title: str) -> str:
    """Returns a table of resolve rates by one field of the tasks, or '' if no task has the field."""
    runs = [run for subset in evidence.experiment.benchmarks for run in evidence.scored_runs(subset)]
    sizes = sum(
        (Counter({name: run.groups[field][name].total() for name in run.groups[field]}) for run in runs),
        Counter(),
    )
    sizes.pop("", None)
    if not sizes:
        return ""
    names = sorted(sorted(sizes, key=lambda name: (-sizes[name], name))[:GROUPS_SHOWN])
    head, columns = [title], [[code(name) for name in names]]
    for subset in evidence.experiment.benchmarks:
        scored = evidence.scored_runs(subset)
        head.append(f"{escape(subset)}<br>tasks")
        sizes_here = [scored[0].groups[field].get(name, Counter()).total() for name in names]
        columns.append([f"{size // scored[0].samples:,}" for size in sizes_here])
        for run in scored:
            head.append(f"{escape(subset)}<br>{escape(evidence.label(run.policy))}")
            columns.append([share_cell(run.groups[field].get(name, Counter())) for name in names])
    caption = f"Resolved by {title.lower()}"
    if len(sizes) > len(names):
        caption += f", the {len(names)} with the most tasks of {len(sizes):,}"
    return table(head, zip(*columns, strict=True), caption)


def share_cell(count: Counter[str]) -> str:
    """Returns the rate and the count of a group."""
    total, resolved = count.total(), count["resolved"]
    return f"{resolved / total:.0%} {mute(f'{resolved:,}')}" if total else mute("\u2013")
