"""The report's section on RL: each training step, and the change on tasks that were not trained on."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from swelab.configs.kinds import RL
from swelab.files import svg_charts
from swelab.files.svg_charts import Bin
from swelab.records import Record
from swelab.scores.report.markup import note, outcome_words, status_words
from swelab.scores.report.report_data import ReportData
from swelab.scores.report.rl_training import RlTraining
from swelab.scores.report.trajectories import content_text, truncate
from swelab.scores.statistics.one_rate import wilson

COMPARED = 3
"""Number of tasks whose first and last validation attempts are shown side by side."""
MESSAGE_CHARACTERS = 1500
CHARTS: Sequence[tuple[str, str, Mapping[str, str]]] = (
    ("Reward", "mean reward of an attempt", {"reward/mean": "reward"}),
    ("Entropy", "nats a token", {"train/entropy": "entropy"}),
    ("Divergence from the start", "KL, nats a token", {"train/kl": "KL"}),
    ("Tokens at a bound", "share of tokens", {"train/clipped": "clipped"}),
    ("Length", "tokens that an attempt sampled", {"tokens/sampled_mean": "sampled"}),
    ("Turns", "turns of an attempt", {"agent/turns_mean": "turns"}),
    (
        "Where the time went",
        "seconds of a step",
        {"time/rollouts": "rollouts", "time/train": "training", "time/validation": "validation"},
    ),
    (
        "Trainer against engine",
        "log-probability, difference",
        {"train/logprob_mismatch": "mean", "train/logprob_mismatch_max": "largest"},
    ),
)
"""For each chart: title, name of the vertical axis, and a map from keys of metrics.jsonl to line names."""


def learned_names(evidence: ReportData) -> list[str]:
    """Returns the names of RL recipes whose policies are compared."""
    return [each.removeprefix("rl:") for each in evidence.compared_weights if each.startswith("rl:")]


def sentences(evidence: ReportData) -> str:
    """Returns one sentence, as HTML, on each RL training whose policy is compared."""
    text = ""
    for name in learned_names(evidence):
        recipe = evidence.at.recipe(RL, name)
        tuned = recipe.start.startswith("sft:")
        start = "the fine-tuned model" if tuned else f"<code>{escape(recipe.start)}</code>"
        text += (
            f" Reinforcement learning continued from {start}, with the test results of its own attempts at"
            f" the tasks of {escape(recipe.subset)}."
        )
    return text


def section(learned: Mapping[str, RlTraining]) -> str:
    """Returns the charts of every training, and shows some tasks in the first and the last validation."""
    return "".join(
        f"<h3>{escape(name)}</h3>{_summary(each)}{_curves(each.steps)}{_side_by_side(each.attempts)}"
        for name, each in learned.items()
    )


def _summary(learned: RlTraining) -> str:
    trained = [row for row in learned.steps if "rollouts" in row]
    checked = [row for row in learned.steps if "validation/tasks" in row]
    told = f"{len(trained):,} steps, {sum(row['rollouts'] for row in trained):,.0f} attempts."
    if checked:
        first, last = (_share(row) for row in (checked[0], checked[-1]))
        told += f" Validation tasks, not used for training: {first} solved at the start, {last} at the end."
    return note(told)


def _share(row: Record) -> str:
    return f"{row['validation/resolved']:,.0f} of {row['validation/tasks']:,.0f}"


def _curves(steps: Sequence[Record]) -> str:
    drawn = [_chart("Resolve rate", "share of attempts", _resolve_rates(steps))]
    drawn += [
        _chart(title, axis, {said: _line(steps, key) for key, said in keys.items()})
        for title, axis, keys in CHARTS
    ]
    ends = sorted({key for row in steps for key in row if key.startswith("end/")})
    by_end = {outcome_words(key.removeprefix("end/")): _line(steps, key, 0.0) for key in ends}
    drawn.insert(2, _chart("How attempts ended", "share of attempts", by_end))
    return f'<div class="charts two">{"".join(drawn)}</div>'


def _resolve_rates(steps: Sequence[Record]) -> dict[str, Sequence[Bin]]:
    """Returns the points of two lines: resolve rates in training, and in validations with a 95 % interval."""
    checked = [row for row in steps if row.get("validation/tasks")]
    intervals = [wilson(int(row["validation/resolved"]), int(row["validation/tasks"])) for row in checked]
    held_out = [
        (float(row["step"]), float(row["validation/resolve_rate"]), *interval)
        for row, interval in zip(checked, intervals, strict=True)
    ]
    return {"of training tasks": _line(steps, "rate/resolved"), "of validation tasks, 95%": held_out}


def _line(steps: Sequence[Record], key: str, absent: float | None = None) -> list[Bin]:
    """Returns a figure by step. absent: value for training steps that did not report the figure."""
    found = []
    for row in steps:
        value = row.get(key, absent if "rollouts" in row else None)
        if value is not None and math.isfinite(value):
            found.append((float(row["step"]), float(value), float(value), float(value)))
    return found


def _chart(title: str, axis: str, lines: Mapping[str, Sequence[Bin]]) -> str:
    there = {name: line for name, line in lines.items() if line}
    if not there:
        return ""
    caption = ", ".join(f"{name}: {line[0][1]:.3g} to {line[-1][1]:.3g}" for name, line in there.items())
    figure = svg_charts.curves(there, f"{title} by step. {caption}", ("step", axis))
    keys = "".join(f"<li>{svg_charts.legend_mark(n)} {escape(name)}</li>" for n, name in enumerate(there))
    legend = f'<ul class="keys">{keys}</ul>' if len(there) > 1 else ""
    return (
        f'<figure class="chart"><h4>{title}</h4>{legend}<div class="plot-box">{figure}</div>'
        f"<figcaption>{escape(caption)}.</figcaption></figure>"
    )


def _side_by_side(attempts: Sequence[Record]) -> str:
    """Shows some tasks in the first and in the last validation, side by side.
    Tasks that only the last validation solved come first, and tasks that only the first solved come last."""
    by_task: dict[str, list[Record]] = {}
    for row in attempts:
        by_task.setdefault(row["instance_id"], []).append(row)
    pairs = [(rows[0], rows[-1]) for rows in by_task.values() if rows[0]["step"] < rows[-1]["step"]]
    pairs.sort(key=lambda pair: pair[0]["resolved"] - pair[1]["resolved"])
    if not pairs:
        return ""
    shown = "".join(
        f"<details{' open' if not number else ''}><summary><code>{escape(pair[0]['instance_id'])}</code>: "
        f"{' &rarr; '.join(status_words(each['status']) for each in pair)}</summary>"
        f'<div class="charts two">{"".join(map(_attempt, pair))}</div></details>'
        for number, pair in enumerate(pairs[:COMPARED])
    )
    return f"<h4>The same task, early and late</h4>{shown}"


def _attempt(row: Record) -> str:
    turns = "".join(
        f"<dt>{escape(message['role'])}</dt>"
        f"<dd><pre>{escape(truncate(content_text(message['content']), MESSAGE_CHARACTERS))}</pre></dd>"
        for message in row["messages"]
        if message["content"] and message["role"] != "system"
    )
    when = f"After {row['step']:,} steps" if row["step"] else "At the start"
    return f'<div class="attempt"><h5>{when}: {status_words(row["status"])}</h5><dl>{turns}</dl></div>'
