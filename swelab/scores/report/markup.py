"""Formats numbers and tables as HTML, in the same way in every section of the report."""

from collections.abc import Collection, Iterable, Sequence
from html import escape

from swelab.files import svg_charts
from swelab.outcomes import FINAL_ROLLOUTS, GradeEnd
from swelab.scores.report.report_data import ReportData, Run

STATUS_WORDS = {str(end): end.words for end in GradeEnd}
"""Maps the grader's verdicts to words for readers."""
OUTCOME_WORDS = {str(end): end.words for end in FINAL_ROLLOUTS}
"""Maps the outcomes of rollouts to words for readers."""
EXPERT_SERIES = 3
"""Number of the chart series for policies without a score, which is drawn as a diamond."""


def points(share: float | None) -> str:
    """Formats a share as a percentage with one decimal."""
    return "n/a" if share is None else f"{100 * share:.1f}%"


def signed_points(share: float) -> str:
    """Formats a difference of shares in percentage points, with a sign."""
    return f"{100 * share:+.1f}".replace("-", "\u2212")


def span(interval: Sequence[float] | None, difference: bool = False) -> str:
    """Formats an interval in square brackets, as percentages."""
    if interval is None:
        return ""
    low, high = (signed_points(limit) if difference else f"{100 * limit:.1f}" for limit in interval)
    return f"[{low}, {high}]"


def p_value(p: float | None) -> str:
    """Formats a p-value with two digits, as a power of ten if the value is small."""
    if p is None:
        return "n/a"
    if p >= 0.001:
        return f"{p:.2f}" if p >= 0.1 else f"{p:.2g}"
    if p < 1e-300:
        return "&lt; 10<sup>\u2212300</sup>"
    digits, power = f"{p:.1e}".split("e")
    return f"{digits} \u00d7 10<sup>\u2212{abs(int(power))}</sup>"


def status_words(status: str) -> str:
    """Returns a verdict in plain words."""
    return STATUS_WORDS.get(status, status.replace("_", " "))


def outcome_words(outcome: str) -> str:
    """Returns how a rollout ended, in plain words."""
    return OUTCOME_WORDS.get(outcome, outcome.replace("_", " "))


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], caption: str, text: Collection[int] = (0,)
) -> str:
    """Returns a table that scrolls in a box. Cells are HTML. Columns in `text` are left-aligned."""
    sides = ["" if column in text else ' class="n"' for column in range(len(head))]
    top = "".join(f'<th scope="col"{side}>{cell}</th>' for side, cell in zip(sides, head, strict=True))
    body = ""
    for first, *rest in rows:
        cells = "".join(f"<td{side}>{cell}</td>" for side, cell in zip(sides[1:], rest, strict=True))
        body += f'<tr><th scope="row">{first}</th>{cells}</tr>'
    name = escape(caption)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table><caption>{name}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def note(html: str, warns: bool = False) -> str:
    """Returns a remark under a figure or a table."""
    return f'<p class="note{" warn" if warns else ""}">{html}</p>'


def code(text: str) -> str:
    """Returns escaped text in a monospaced font."""
    return f"<code>{escape(text)}</code>"


def mute(html: str) -> str:
    """Returns HTML in the muted colour."""
    return f'<span class="muted">{html}</span>'


def bar_row(label: str, figure: str, value: str) -> str:
    """Returns one row of a figure: a name, a bar and a value."""
    return (
        f'<div class="bar-row"><div class="bar-label">{label}</div>'
        f'<div class="bar-figure">{figure}</div><div class="bar-value">{value}</div></div>'
    )


def series_of(evidence: ReportData, policy: str) -> int:
    """Returns the number of a policy's chart series. Compared policies are drawn as circle or disc, the
    expert as diamond."""
    test = evidence.verified.comparison
    order = list(dict.fromkeys([test.from_policy, test.to_policy, *evidence.experiment.policies]))
    if policy not in order:
        return EXPERT_SERIES
    place = order.index(policy)
    return place if place < EXPERT_SERIES else place + 1


def policy_name(evidence: ReportData, policy: str) -> str:
    """Returns HTML with a policy's legend symbol and its name."""
    return f"{svg_charts.legend_mark(series_of(evidence, policy))}{escape(evidence.label(policy))}"


def run_name(evidence: ReportData, run: Run) -> str:
    """Returns a run's mark, policy and subset as HTML."""
    return f"{policy_name(evidence, run.policy)} {mute(escape(run.subset))}"
