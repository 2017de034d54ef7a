"""Writes the report: one self-contained HTML page about one experiment, without a network request.

Trajectories are untrusted text. The page contains trajectories as JSON in a data block. Every character that
could end the block is escaped, and the viewer shows trajectories only as text. A content security policy
allows only the page's own script and style, by hash.

The page opens quickly with any number of attempts. On opening, it reads a list of attempts. The steps of an
attempt are unpacked on demand from a second block with one compressed line per attempt.
"""

import base64
import hashlib
import json
from html import escape
from pathlib import Path
from string import Template

from swelab.records import Record
from swelab.scores.report import (
    infrastructure_losses,
    provenance_sections,
    reinforcement,
    results,
    time_and_cost,
)
from swelab.scores.report.attempts import COLUMNS
from swelab.scores.report.markup import OUTCOME_WORDS, STATUS_WORDS, points
from swelab.scores.report.pipeline import picture
from swelab.scores.report.report_data import ReportData

PAGE = Path(__file__).parent / "page"


def render(evidence: ReportData) -> str:
    """Returns the page as HTML."""
    style, script = ((PAGE / name).read_text(encoding="utf-8") for name in ("page.css", "viewer.js"))
    blocks = content(evidence)
    nav = "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title, _, _ in blocks)
    name = evidence.at.names["experiment"]
    return Template((PAGE / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(" ".join(title_of(evidence))),
        heading=" ".join(f'<span class="nowrap">{escape(part)}</span>' for part in title_of(evidence)),
        experiment=escape(name),
        style=style,
        style_hash=source_hash(style),
        script=script,
        script_hash=source_hash(script),
        nav=nav,
        sections="".join(block(*each) for each in blocks),
        data=embed(viewer_data(evidence)),
        packed="\n".join(line for run in evidence.runs for line in run.attempts.packed),
        footer=f"Written by swelab from <code>results/experiments/{escape(name)}/verified_score.json</code>. "
        "The page makes no network request. "
        f"Rebuild it with <code>snakemake results/experiments/{escape(name)}/report.html</code>.",
    )


def title_of(evidence: ReportData) -> list[str]:
    """Returns the parts of the page's title.

    The title shows both policies' rates on every benchmark. There should be no line break within a part. The
    title mentions attempts lost to infrastructure, because the rates count them as not resolved.
    """
    parts = ["Resolve rate"]
    for side in results.sides(evidence):
        parts.append(f"on {side.benchmark.name}:")
        for name in (side.comparison[which] for which in ("from", "to")):
            rate = points(side.policies[name]["resolve_rate"])
            parts.append(f"{evidence.label(name)}\u00a0{rate}")
            parts[-1] += ","
        parts[-1] = parts[-1][:-1] + ";"
    parts[-1] = parts[-1][:-1]
    if lost := infrastructure_losses.lost_attempts(evidence):
        parts[-1] += ";"
        parts += [f"{lost:,} attempts", "lost to", "infrastructure"]
    return parts


def content(evidence: ReportData) -> list[tuple[str, str, str, str]]:
    """Returns (key, title, subtitle, HTML) of every section, in reading order."""
    learned = reinforcement.section(evidence.rewarded)
    rewarded = (
        "rewarded",
        "Reinforcement learning",
        "Learning from the test results of a policy's own attempts.",
        learned,
    )
    return [
        ("result", "Result", "", results.headline(evidence)),
        ("pipeline", "How it was made", "Every box is a file or a folder under results/.", picture(evidence)),
        ("scores", "Scores", "Resolve rate by policy, and paired tests.", results.scores(evidence)),
        ("outcomes", "Outcomes", "How every attempt ended.", results.outcomes(evidence)),
        ("breakdown", "Breakdown", "The groups are small, so read the counts.", results.breakdown(evidence)),
        ("trajectories", "Attempts", "Step by step, with the tests; failures first.", viewer(evidence)),
        ("training", "Training", "What each training step did.", provenance_sections.training(evidence)),
        *([rewarded] if learned else []),
        ("lengths", "Lengths", "Turns and tokens.", provenance_sections.lengths(evidence)),
        (
            "stages",
            "Time and cost",
            "When, where and how long each stage ran.",
            time_and_cost.stages(evidence),
        ),
        (
            "gates",
            "Left out",
            "Every dropped item is counted, with its reason.",
            provenance_sections.gates(evidence),
        ),
        ("provenance", "Provenance", "What the score rests on.", provenance_sections.provenance(evidence)),
    ]


def block(key: str, title: str, subtitle: str, body: str) -> str:
    """Returns the HTML of a section.

    The first section comes directly under the page's title. Sections with the class `whole` take the whole
    width.
    """
    css = {"result": "block whole first", "pipeline": "block whole", "trajectories": "block whole"}.get(
        key, "block"
    )
    if key == "result":
        head, label = "", f' aria-label="{escape(title)}"'
    else:
        told = f"<p>{escape(subtitle)}</p>" if subtitle else ""
        head, label = f"<header><h2>{escape(title)}</h2>{told}</header>", ""
    return f'<section class="{css}" id="{key}"{label}>{head}<div>{body}</div></section>'


def viewer_data(evidence: ReportData) -> Record:
    """Returns the viewer's initial data: the runs, each with its attempts. The column `packed` contains the
    indexes of packed attempts."""
    runs: list[Record] = []
    first = 0
    for run in evidence.runs:
        names = {"subset": run.subset, "policy": run.policy, "label": evidence.label(run.policy)}
        facts = {
            "scored": run.scored,
            "total": run.total,
            "folder": evidence.file("predictions", policy=run.policy, subset=run.subset).parent.as_posix(),
            "first": first,
            "rows": run.attempts.rows,
        }
        runs.append({**names, **facts})
        first += len(run.attempts.packed)
    kinds = {"columns": COLUMNS, "statuses": STATUS_WORDS, "outcomes": OUTCOME_WORDS}
    return {"runs": runs, "opens": evidence.verified.comparison.to_policy, **kinds}


def viewer(evidence: ReportData) -> str:
    """Returns the HTML around the viewer. It states how many attempts the page contains."""
    parts = []
    for run in evidence.runs:
        counts = f"{len(run.attempts.packed):,} of {run.total:,}"
        parts.append(f"{escape(evidence.label(run.policy))} on {escape(run.subset)} {counts}")
    shown = f"Attempts whose steps are in this page: {'; '.join(parts)}. Long texts are truncated and marked."
    return Template((PAGE / "viewer.html").read_text(encoding="utf-8")).substitute(shown=shown)


def embed(data: Record) -> str:
    """Returns JSON that is safe inside a script element: only ASCII, and without <, > and &."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def source_hash(text: str) -> str:
    """Returns the hash source of an inline script or style, in the form of a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
