"""Sections of the report on the precision of the rates: runs, pass@k, pairs of policies, further runs."""

from html import escape

from swelab.records.score_records import BenchmarkResult, Comparison, Differences, Estimate, PolicyScore
from swelab.scores.report.markup import mute, note, p_value, points, policy_name, signed_points, span, table
from swelab.scores.report.report_data import ReportData

SHOWN = (1, 2, 3, 5, 10, 20, 50, 100)
"""Values of k for which pass@k is shown. The largest k is always shown."""


def runs_of(policy: PolicyScore) -> int:
    """Returns how many times a policy attempted each task."""
    return len(policy.get("runs", [0]))


def times(count: int) -> str:
    """Returns `count` as an adverb: "once", "twice", "3 times"."""
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def attempts_text(evidence: ReportData, names: list[str]) -> str:
    """Returns how often policies attempted each task, in the policies' order: "once", or "2 and 5 times"."""
    counts = [runs_of(evidence.verified.policies[name]) for name in names]
    return times(counts[0]) if len(set(counts)) == 1 else f"{' and '.join(map(str, counts))} times"


def test_name(test: Comparison) -> str:
    """Returns a short name of the paired test."""
    return "Paired permutation test, exact" if "runs" in test else "McNemar exact, two-sided"


def caveat(evidence: ReportData) -> str:
    """Returns a note on what the intervals cover, as HTML."""
    counts = {name: runs_of(policy) for name, policy in evidence.verified.policies.items()}
    if set(counts.values()) == {1}:
        return note(
            "Every policy attempted every task once. The intervals cover the choice of tasks, not another "
            "training seed or another run."
        )
    if len(set(counts.values())) == 1:
        often = times(next(iter(counts.values())))
    else:
        often = ", ".join(f"by {escape(evidence.label(name))} {times(k)}" for name, k in counts.items())
    return note(
        f"Each task was attempted {often}. The intervals cover the choice of tasks and the variation between "
        "attempts, not another training seed."
    )


def several_runs(evidence: ReportData) -> str:
    """Returns a table with the spread of each policy's runs, and pass@k. Returns '' without several runs."""
    several = [row for row in all_scores(evidence) if runs_of(row[1]) > 1]
    if not several:
        return ""
    rows = []
    for name, policy in several:
        if (spread := policy.spread) is None:
            continue
        rows.append(
            [
                name,
                f"{runs_of(policy)}",
                f"{points(spread.lowest)} to {points(spread.highest)}",
                f"{100 * spread.sd:.1f}",
                f"{100 * spread.expected_sd:.1f}",
                p_value(spread.p_value),
            ]
        )
    head = ["Policy", "Runs", "Lowest to highest", "Spread, points", "By chance alone", "p"]
    told = note(
        "Spread: standard deviation of the runs' rates. By chance alone: the spread if runs differ only by "
        "the chance of each attempt; then two single runs differ by more than 2.8 times this value in one "
        "case of twenty. p: Cochran's Q, a test of whether runs differ by more."
    )
    return table(head, rows, "Runs of the same tasks") + told + pass_table(several)


def pass_table(several: list[tuple[str, PolicyScore]]) -> str:
    """Returns a table of pass@k and pass^k. Each policy has two rows, and each k has a column."""
    counts = sorted({int(k) for _, policy in several for k in policy.pass_at})
    shown = [k for k in counts if k in SHOWN or k == counts[-1]]
    rows = [
        [f"{name}, {what}", *(pass_cell(policy[field].get(str(k))) for k in shown)]
        for name, policy in several
        for field, what in (("pass_at", "any"), ("pass_all", "all"))
    ]
    told = note(
        "Share of tasks that any of k attempts resolves (pass@k), and that all of them do (pass^k), "
        "estimated without bias from all runs, with 95% intervals over tasks."
    )
    return table(["Policy", *(f"k = {k}" for k in shown)], rows, "Several attempts at a task") + told


def pass_cell(estimate: Estimate | None) -> str:
    """Returns a cell of `pass_table`."""
    if estimate is None:
        return mute("\u2013")
    return f'<span class="nowrap">{points(estimate.rate)} {mute(span(estimate.interval))}</span>'


def all_scores(evidence: ReportData) -> list[tuple[str, PolicyScore]]:
    """Returns (name as HTML, score) of every policy on every benchmark."""
    return [
        (f"{policy_name(evidence, name)} {mute(escape(side.benchmark.name))}", policy)
        for side in (evidence.verified, *evidence.verified.others)
        for name, policy in side.policies.items()
    ]


def pairwise(side: BenchmarkResult, evidence: ReportData) -> str:
    """Returns a table that compares every two policies, with Holm's correction.
    Returns '' for two policies."""
    tests = side.get("pairwise", [])
    if not tests:
        return ""
    rows = [
        [
            f"{escape(evidence.label(test.from_policy))} to {escape(evidence.label(test.to_policy))}",
            "n/a"
            if test.difference is None
            else f"{signed_points(test.difference)} {span(test.interval, True)}",
            p_value(test.p_value),
            p_value(test.p_adjusted),
        ]
        for test in tests
    ]
    caption = f"Every two policies on {side.benchmark.name}"
    return table(["Policies", "Difference, points", "p", "p, corrected"], rows, caption) + note(
        f"Corrected: Holm's method over these {len(tests)} comparisons. Use this p, unless a single "
        "comparison was chosen before the results were known."
    )


def planning(evidence: ReportData) -> str:
    """Returns a table of the differences that further runs could detect, or '' if no score has them."""
    found = [(name, told) for name, policy in all_scores(evidence) if (told := policy.detectable)]
    if not found:
        return ""
    counts = sorted({int(count) for _, told in found for count in told.runs})
    rows = [[name, *(limit(told.runs.get(str(count))) for count in counts)] for name, told in found]
    power = found[0][1].power
    head = ["Compared with", *(f"{count} run{'s' * (count > 1)}" for count in counts)]
    return table(head, rows, "Detectable differences, in points") + note(
        "For planning the next experiment. A new policy is compared with the policy of the row; both attempt "
        "every task as often as the column says. If their true resolve rates differ by this number of "
        f"points, {power:.0%} of such experiments show a significant difference. Of two figures the first "
        "applies if both policies find the same tasks hard, the second if their results are independent. The "
        "first figure needs several runs of the policy of the row."
    )


def limit(differences: Differences | None) -> str:
    """Returns a cell of `planning`."""
    if differences is None:
        return mute("\u2013")
    least, most = differences.same_tasks_hard, differences.unrelated
    return f"{100 * most:.1f}" if least is None else f"{100 * least:.1f} to {100 * most:.1f}"
