"""Reports tasks lost to infrastructure. The page gives two rates: with lost tasks and without them."""

from html import escape

from swelab.outcomes import GradeEnd
from swelab.records.score_records import BenchmarkResult, PolicyScore
from swelab.scores.report.markup import note, points, run_name, span, table
from swelab.scores.report.report_data import ReportData, Run
from swelab.scores.score import rate


def first_line(evidence: ReportData) -> str:
    """Returns the page's first line. It says how many attempts were lost, and how the rates count lost
    attempts. The line is empty if no attempt of a scored run was lost."""
    lost = lost_attempts(evidence)
    if not lost:
        return ""
    total = sum(run.total for run in evidence.runs if run.scored)
    told = (
        f"{lost:,} of {total:,} scored attempts were lost to infrastructure: the sandbox or the model "
        "failed, so nothing is known about the policy. The rates below count them as not resolved. "
        "Next to each rate stands the rate without them."
    )
    return f'<p class="note warn first-line">{told}</p>'


def lost_attempts(evidence: ReportData) -> int:
    """Returns the number of attempts of scored runs that were lost to infrastructure."""
    return sum(lost_of(run) for run in evidence.runs if run.scored)


def lost_rate(policy: PolicyScore) -> str:
    """Returns the number of lost tasks and the rate without them as HTML, or '' if none was lost."""
    if not policy.infra_errors:
        return ""
    rest = policy.without_infra_errors
    lost = f"{policy.infra_errors:,} lost to infrastructure"
    return f'<p class="muted">{points(rest.resolve_rate)} with {lost} left out</p>'


def lost_note(side: BenchmarkResult, evidence: ReportData) -> str:
    """Returns the rates without lost tasks as HTML, or states that no task was lost."""
    lost = {name: policy for name, policy in side.policies.items() if policy.infra_errors}
    if not lost:
        return note("No task was lost to infrastructure: every task has a verdict.")
    rates = []
    for name, policy in lost.items():
        rest = policy.without_infra_errors
        without = f"{points(rest.resolve_rate)} {span(rest.interval)}"
        rates.append(
            f"{escape(evidence.label(name))} lost {policy.infra_errors:,} and has {without} without them"
        )
    return note(
        f"The rates above count tasks lost to infrastructure as not resolved: {'; '.join(rates)}.", warns=True
    )


def both_rates(evidence: ReportData) -> str:
    """Returns a table with both rates of every run that lost tasks, or '' if no run lost any."""
    rows = []
    for run in evidence.runs:
        if lost := lost_of(run):
            rates = (rate(run.resolved, size).resolve_rate for size in (run.total, run.total - lost))
            rows.append([run_name(evidence, run), f"{lost:,}", *map(points, rates)])
    caption = "Resolve rates with and without tasks lost to infrastructure"
    return table(["Run", "Lost", "Of all", "Without the lost"], rows, caption) if rows else ""


def group_note(runs: list[Run]) -> str:
    """Returns a note that a table of groups counts lost attempts as not resolved, or '' if none was lost."""
    lost = sum(map(lost_of, runs))
    told = f"Attempts lost to infrastructure count as not resolved here: {lost:,}."
    return note(told, warns=True) if lost else ""


def lost_of(run: Run) -> int:
    """Returns the number of a run's tasks that were lost to infrastructure."""
    return int(run.report.statuses.get(GradeEnd.INFRA_ERROR, 0))
