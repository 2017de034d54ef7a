"""The sections of the report on how the score was made. All external text is escaped."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from html import escape

from swelab.configs.kinds import SFT
from swelab.files import svg_charts
from swelab.outcomes import GradeEnd, RolloutEnd
from swelab.records import Record
from swelab.scores.report import validation
from swelab.scores.report.markup import (
    code,
    note,
    outcome_words,
    policy_name,
    run_name,
    series_of,
    status_words,
    table,
)
from swelab.scores.report.report_data import ReportData
from swelab.scores.report.trajectories import truncate

MANIFEST_CHARACTERS = 12_000


MEASURES = {
    "loss": ("Loss", "loss per token"),
    "lr": ("Learning rate", "learning rate"),
    "grad_norm": ("Gradient norm", "norm before clipping"),
    "tokens_per_second": ("Speed", "tokens per second"),
}
"""Maps a column of a training's records to (title of the chart, name of its vertical axis)."""


def training(evidence: ReportData) -> str:
    """Returns charts by step of each training: loss, learning rate, gradient norm and speed, if recorded."""
    parts = ""
    for series, (title, steps) in enumerate(evidence.training.items()):
        charts = "".join(measure_chart(measure, steps, series) for measure in MEASURES)
        told = "" if len(missing := absent_measures(steps)) == 0 else f" Not recorded: {', '.join(missing)}."
        parts += f'<h3>{escape(title)}</h3><div class="charts two">{charts}</div>' + note(
            f"{len(steps):,} steps. A curve is the mean of neighbouring steps, its band their range.{told}"
        )
    return parts or note("No training was recorded.")


def absent_measures(steps: list[Record]) -> list[str]:
    """Returns the titles of the measures that no step recorded."""
    return [title.lower() for name, (title, _) in MEASURES.items() if not any(name in row for row in steps)]


def measure_chart(measure: str, steps: list[Record], series: int) -> str:
    """Returns a chart of one measure by step, or '' if the measure was not recorded.
    If no value is finite, returns a note."""
    curve = [(row["step"], row[measure]) for row in steps if measure in row]
    if not curve:
        return ""
    title, name = MEASURES[measure]
    finite = [(step, value) for step, value in curve if math.isfinite(value)]
    if not finite:
        return note(f"{title}: no finite value among {len(curve):,} steps.", warns=True)
    tail = [value for _, value in finite[-max(1, len(finite) // 20) :]]
    first, last = finite[0][1], sum(tail) / len(tail)
    odd = len(curve) - len(finite)
    left = f" {odd:,} steps without a finite value are not drawn." if odd else ""
    when = f"the mean of the last {len(tail):,} steps" if len(tail) > 1 else "the last"
    told = f"{first:,.4g} at the first step, {last:,.4g} at {when}."
    drawn = svg_charts.curve(finite, f"{title} by step: {told}", ("step", name), series)
    return chart(title, drawn, told.replace(" at the mean", " as the mean") + left)


def chart(title: str, figure: str, caption: str) -> str:
    """Returns a figure with a title and a caption."""
    return (
        f'<figure class="chart"><h4>{title}</h4><div class="plot-box">{figure}</div>'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def lengths(evidence: ReportData) -> str:
    """Returns histograms: turns and tokens of every run's trajectories, and tokens of training rows."""
    parts = ""
    shown = {"turns": "Turns of the policy", "tokens": "Tokens of the conversation at the policy's last turn"}
    for field, title in shown.items():
        charts = ""
        for run in evidence.runs:
            if counts := getattr(run.attempts, field):
                series = series_of(evidence, run.policy)
                charts += length_chart(run_name(evidence, run), counts, series, (field, "attempts"))
        parts += f'<h3>{title}</h3><div class="charts three">{charts}</div>' if charts else ""
    if evidence.lengths:
        series = series_of(evidence, evidence.expert)
        name = policy_name(evidence, evidence.expert)
        axes = ("tokens", "training rows")
        row = length_chart(name, Counter(evidence.lengths), series, axes, longest_row(evidence))
        parts += f'<h3>Tokens of the training rows</h3><div class="charts three">{row}</div>'
    return parts


def longest_row(evidence: ReportData) -> int | None:
    """Returns the token limit of a training row, or None if the limit is too large for the chart."""
    selection = evidence.at.recipe(SFT, evidence.experiment.sft).selection
    bound = selection.max_tokens
    return bound if 0 < bound <= 2 * max(evidence.lengths) else None


def length_chart(
    name: str, counts: Mapping[int, int], series: int, axes: tuple[str, str], bound: int | None = None
) -> str:
    """Returns a histogram with its quantiles below and a line at `bound`."""
    total = sum(counts.values())
    middle, high = quantile(counts, 0.5), quantile(counts, 0.95)
    told = (
        f"Half of the {total:,} have at most {middle:,}, 95% at most {high:,}, all at most {max(counts):,}."
    )
    told += f" The dashed line is the limit of {bound:,}." if bound else ""
    return chart(name, svg_charts.histogram(counts, told, axes, series, mark=bound), escape(told))


def quantile(counts: Mapping[int, int], share: float) -> int:
    """Returns the smallest value v such that at least `share` of all values are at most v."""
    needed, seen = share * sum(counts.values()), 0
    for value in sorted(counts):
        seen += counts[value]
        if seen >= needed:
            return value
    return max(counts)


def gates(evidence: ReportData) -> str:
    """Returns a table of the stages. For each stage, the table shows how many items the stage read and kept,
    and why it dropped items."""
    total = sum(run.total for run in evidence.runs)
    shown = sum(len(run.attempts.packed) for run in evidence.runs)
    rest = {"beyond the size of the page": total - shown}
    rows = [
        *training_gates(evidence),
        *pairing_gates(evidence),
        gate("Attempts whose steps are in this page", total, shown, rest),
    ]
    passed = table(["Stage", "In", "Out", "Left out, and why"], rows, "What every stage let through", (0, 3))
    return passed + validation.overview(evidence)


def training_gates(evidence: ReportData) -> Iterator[list[str]]:
    """Yields table rows for all stages from making tasks to training rows."""
    yield from task_gates(evidence)
    for run in evidence.expert_runs:
        name, ends = run_name(evidence, run), run.report.get("outcomes", {})
        others = {outcome_words(name): count for name, count in ends.items() if name != RolloutEnd.SUBMITTED}
        yield gate(f"Rollouts of {name}", run.total, ends.get(RolloutEnd.SUBMITTED, 0), others)
        verdicts = {status_words(name): run.report.statuses.get(name, 0) for name in list(GradeEnd)[1:]}
        yield gate(f"Grading of {name}", run.total, run.resolved, verdicts)
    if evidence.lengths:
        told = evidence.manifest("dataset.manifest", sft=evidence.experiment.sft)
        kept, reasons = len(evidence.lengths), drops(told)
        entered = told.get("trajectories", kept + sum(reasons.values()))
        yield gate("Selecting training rows", entered, kept, reasons)
        yield from selection_gates(told)


def task_gates(evidence: ReportData) -> Iterator[list[str]]:
    """Yields two table rows for each subset: tasks dropped when they were made, and in validation."""
    for subset in evidence.subsets:
        facts = evidence.manifest("tasks.manifest", subset=subset)
        if "kept" in facts:
            reasons = drops(facts)
            entered = facts["kept"] + sum(reasons.values())
            yield gate(f"Making {escape(subset)}", entered, facts["kept"], reasons)
        if subset in evidence.gates:
            facts = evidence.gates[subset].figures
            reasons = {f"{kind}: {meaning}": facts.get(kind, 0) for kind, meaning in validation.KINDS.items()}
            entered = facts["gold_tasks"] + facts.get("private", 0) + facts.get("null_tasks", 0)
            yield gate(f"Validating {escape(subset)}", entered, facts["kept"], reasons)


def selection_gates(selection: Record) -> Iterator[list[str]]:
    """Yields a table row for each selection step in the dataset's manifest. Then yields a row for changed
    training rows, if there are any."""
    recipe = selection.get("recipe", {})
    over_long = f", over {recipe.get('max_tokens', 0):,} tokens {recipe.get('over_long', 'drop')}"
    for each in selection.get("gates", []):
        name = str(each["gate"]).replace("_", " ")
        more = over_long.replace("_", " ") if name == "length" else ""
        yield gate(f"&nbsp;&nbsp;{escape(name + more)}", each["in"], each["out"], each["dropped"])
    if notes := selection.get("notes"):
        yield gate("&nbsp;&nbsp;mended or made", selection["kept"], selection["rows"], notes)


def pairing_gates(evidence: ReportData) -> Iterator[list[str]]:
    """Yields a table row for the paired comparison of each benchmark."""
    for side in (evidence.verified, *evidence.verified.others):
        test, name = side.comparison, escape(side.benchmark.name)
        lost = {"lost to infrastructure on either side": test.excluded_infra_errors}
        yield gate(f"Pairing on {name}", side.benchmark.size, test.pairs, lost)


def gate(stage: str, entered: int, remaining: int, reasons: Mapping[str, int]) -> list[str]:
    """Returns one row of the table of stages."""
    told = "".join(
        f"<li>{count:,} {escape(truncate(str(reason)).replace('_', ' '))}</li>"
        for reason, count in reasons.items()
        if count
    )
    return [stage, f"{entered:,}", f"{remaining:,}", f'<ul class="reasons">{told or "<li>nothing</li>"}</ul>']


CODE_STATES = {True: "with uncommitted changes", False: "clean", None: "not known"}


def provenance(evidence: ReportData) -> str:
    """Returns the code, packages, files with hashes, recipes, and manifests of the stages, as HTML."""
    manifest = evidence.verified.manifest
    revision = manifest.code
    state = CODE_STATES[revision.dirty]
    packages = ", ".join(f"{name} {version}" for name, version in manifest.packages.items())
    facts = [
        ["Code", f"{code(revision.commit or 'git does not say')} ({state})"],
        ["Packages", escape(packages)],
        ["Recipes", f"{len(manifest.recipes):,}, with every default filled in; in full below"],
    ]
    files = [
        [code(file.path), f'<code class="hash">{file.sha256}</code>', f"{file.bytes:,}"]
        for file in manifest.files
    ]
    hashes = table(["File", "SHA-256", "Bytes"], files, "Hashes", (0, 1))
    stages = "".join(fold(path, content) for path, content in manifest.stages.items())
    written = "".join(fold(f"configs/{path}", recipe) for path, recipe in manifest.recipes.items())
    return (
        table(["What", "Which"], facts, "What made the score", (0, 1))
        + f"<h3>Files behind the score</h3><details><summary>{len(files):,} files and their hashes</summary>"
        + f"{hashes}</details><h3>Recipes</h3>{written}"
        + f"<h3>What the stages wrote about themselves</h3>{stages or note('Nothing was given.')}"
        + absent(evidence)
    )


def fold(path: str, content: Record) -> str:
    """Returns a JSON record that opens on demand."""
    text = truncate(json.dumps(content, indent=2, ensure_ascii=False), MANIFEST_CHARACTERS)
    return f"<details><summary>{code(path)}</summary><pre>{escape(text)}</pre></details>"


def absent(evidence: ReportData) -> str:
    """Returns a note that names missing optional files, or '' if no file is missing."""
    missing = dict.fromkeys([*evidence.verified.manifest.missing, *evidence.missing])
    return (
        note(f"Missing when this page was written: {', '.join(map(code, missing))}.", warns=True)
        if missing
        else ""
    )


def drops(manifest: Record) -> dict[str, int]:
    """Returns the numbers of dropped items, keyed by reason. Returns {} if the manifest has none."""
    reasons: dict[str, int] = {}
    for name in ("dropped", "drops"):
        told = manifest.get(name)
        if isinstance(told, dict):
            reasons |= {
                str(reason): count for reason, count in told.items() if isinstance(count, int) and count
            }
    return reasons
