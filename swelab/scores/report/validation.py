"""The report's section on the validation of tasks before use. External text is escaped."""

from html import escape

from swelab.records.report_records import Validation
from swelab.scores.report.markup import code, note, table
from swelab.scores.report.report_data import ReportData
from swelab.scores.report.trajectories import truncate

REASON_CHARACTERS = 300
KINDS = {
    "flaky": "gold patch resolved in some runs only",
    "broken": "cannot be graded rightly",
    "unjudged": "the grader itself failed, so the task is not judged",
}


def sentence(evidence: ReportData, subset: str) -> str:
    """Returns the figures of one subset's validation as a remark, or a warning without a validation."""
    gate = evidence.gates.get(subset)
    if gate is None:
        return note("The tasks were not validated: they have no lock.", warns=True)
    figures = gate.figures
    private = figures.private
    unseen = f"{private:,} tasks were not validated, as their answers are private. " if private else ""
    unseen += null_only(figures)
    if not figures.gold_tasks:
        return note(unseen.strip(), warns=bool(figures.null_tasks))
    count = figures.unjudged
    unjudged = f", {count:,} unjudged ({KINDS['unjudged']})" if count else ""
    return note(
        f"{unseen}Validation: {figures.kept - private - figures.null_kept:,} of {figures.gold_tasks:,} tasks "
        "valid; "
        f"gold patches resolved {gold(figures)} runs ({figures.gold_runs:,} each); "
        f"{figures.flaky:,} flaky, {figures.broken:,} broken{unjudged}"
        f"{' (left out)' if figures.flaky + figures.broken + count else ''}."
    )


def null_only(figures: Validation) -> str:
    """Returns a passage about tasks without a repair, or "" if there are none."""
    if not figures.null_tasks:
        return ""
    left_out = f"; {figures.flaky:,} flaky, {figures.broken:,} broken (left out)" * (not figures.gold_tasks)
    return (
        f"Validated: null only. No repair is known of {figures.null_tasks:,} tasks. In {figures.null_kept:,} "
        f"of these the same tests failed in every run of the unchanged code{left_out}. There is no proof "
        "that they can be solved. "
    )


def gold(figures: Validation) -> str:
    """Returns how many gold runs resolved their task, as "N of M"."""
    return f"{figures.gold_runs_resolved:,} of {figures.gold_runs * figures.gold_tasks:,}"


def overview(evidence: ReportData) -> str:
    """Returns a table of every subset's validation, and the excluded tasks with reasons."""
    rows = []
    for subset in evidence.subsets:
        if subset in evidence.gates:
            figures = evidence.gates[subset].figures
            valid = figures.kept - figures.private - figures.null_kept
            null = f"{figures.null_kept:,} of {figures.null_tasks:,}" if figures.null_tasks else "0"
            counts = (figures.gold_tasks, valid, figures.flaky, figures.broken)
            rows.append([escape(subset), *(f"{count:,}" for count in counts), gold(figures), null])
        else:
            rows.append([escape(subset), *["not validated"] * 6])
    head = ["Subset", "Tasks", "Valid", "Flaky", "Broken", "Gold runs resolved", "Null only"]
    explanation = note(
        "Valid: the gold patch is resolved in every run, an empty patch and the reversed gold patch never. "
        f"Flaky: {KINDS['flaky']}. Broken: {KINDS['broken']}. A run that several tasks "
        "of a repository share counts for each. Null only: no repair is known, and the same tests fail in "
        "every run of the unchanged code; there is no proof that such a task can be solved. Only valid and "
        "null-only tasks are attempted."
    )
    return table(head, rows, "Validation of the tasks") + explanation + excluded_lists(evidence)


def excluded_lists(evidence: ReportData) -> str:
    """Returns collapsible lists of the excluded tasks with reasons, one list for each subset and kind."""
    parts = ""
    for subset, gate in evidence.gates.items():
        for kind in KINDS:
            count = gate.figures.get(kind, 0)
            if not count:
                continue
            listed = "".join(
                f"<li>{code(row.instance_id)}: {escape(truncate(row.reason, REASON_CHARACTERS))}</li>"
                for row in gate.dropped[kind]
            )
            shown = f" (the first {len(gate.dropped[kind]):,})" if len(gate.dropped[kind]) < count else ""
            head = f"{count:,} {kind} in {escape(subset)}{shown}"
            parts += f'<details><summary>{head}</summary><ul class="reasons">{listed}</ul></details>'
    return parts
