"""The report: one self-contained HTML page about one experiment, without a single network request.

Trajectories are hostile text. They enter the page as JSON inside a data block, with every
character escaped that could end it, and the viewer puts them on screen as text only. A content
security policy allows the page's own script and style by hash and nothing else.
"""

import base64
import hashlib
import json
from html import escape
from pathlib import Path
from string import Template

from swelab.records import Record
from swelab.scores import findings, making
from swelab.scores.evidence import Evidence, Run
from swelab.scores.markup import points
from swelab.scores.pipeline import picture

PAGE = Path(__file__).parent / "page"
VIEWER_BYTES = 6_000_000
"""What all embedded trajectories together may take; each run gets an equal part."""


def render(evidence: Evidence) -> str:
    """The page as HTML."""
    style, script = ((PAGE / name).read_text(encoding="utf-8") for name in ("page.css", "viewer.js"))
    data = viewer_data(evidence)
    blocks = content(evidence, data)
    nav = "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title, _, _ in blocks)
    name = evidence.experiment["name"]
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
        data=embedded(data),
        footer=f"Written by swelab from <code>results/verified_score.json</code> of {escape(name)}. "
        "The page makes no network request. Rebuild it with <code>snakemake results/report.html</code>.",
    )


def title_of(evidence: Evidence) -> list[str]:
    """The finding as a title, in parts that should not be broken: both rates on the headline benchmark."""
    verified = evidence.verified
    rates = [
        f"{evidence.label(verified['comparison'][side])}\u00a0"
        f"{points(verified['policies'][verified['comparison'][side]]['resolve_rate'])}"
        for side in ("from", "to")
    ]
    return ["Resolve rate on", f"{verified['benchmark']['name']}:", f"{rates[0]},", rates[1]]


def content(evidence: Evidence, data: Record) -> list[tuple[str, str, str, str]]:
    """Key, title, subtitle and HTML of every section, in reading order."""
    shown = sum(len(run["shown"]) for run in data["runs"])
    return [
        ("result", "Result", "", findings.headline(evidence)),
        ("pipeline", "How it was made", "Every box is a file or a folder under results/.", picture(evidence)),
        ("scores", "Scores", "Resolve rate by policy, and paired tests.", findings.scores(evidence)),
        ("outcomes", "Outcomes", "What became of every task.", findings.outcomes(evidence)),
        ("breakdown", "Breakdown", "Small groups: read them as counts.", findings.breakdown(evidence)),
        ("training", "Training", "Loss by step.", making.training(evidence)),
        ("lengths", "Lengths", "Turns and tokens.", making.lengths(evidence)),
        (
            "gates",
            "Left out",
            "Nothing is dropped without a count and a reason.",
            making.gates(evidence, shown),
        ),
        ("trajectories", "Trajectories", "Step by step, with the verdict of every test.", viewer(data)),
        ("provenance", "Provenance", "What the score rests on.", making.provenance(evidence)),
    ]


def block(key: str, title: str, subtitle: str, body: str) -> str:
    """A section; the first stands under the page's title, and the picture takes the whole width."""
    css = {"result": "block whole first", "pipeline": "block whole"}.get(key, "block")
    if key == "result":
        head, label = "", f' aria-label="{escape(title)}"'
    else:
        told = f"<p>{escape(subtitle)}</p>" if subtitle else ""
        head, label = f"<header><h2>{escape(title)}</h2>{told}</header>", ""
    return f'<section class="{css}" id="{key}"{label}>{head}<div>{body}</div></section>'


def viewer_data(evidence: Evidence) -> Record:
    """What the viewer reads: the sampled trajectories that fit, and the tasks that they belong to."""
    quota = VIEWER_BYTES // max(1, len(evidence.runs))
    runs: list[Record] = []
    tasks: dict[str, dict[str, Record]] = {}
    for run in evidence.runs:
        shown = fitting(run, quota)
        known = evidence.tasks[run.subset]
        names = {str(row.get("task", row["id"])) for row in shown}
        tasks.setdefault(run.subset, {}).update({name: known[name] for name in sorted(names)})
        told = {"subset": run.subset, "policy": run.policy, "label": evidence.label(run.policy)}
        runs.append({**told, "scored": run.scored, "total": run.total, "shown": shown})
    return {"runs": runs, "tasks": tasks, "opens": evidence.verified["comparison"]["to"]}


def fitting(run: Run, quota: int) -> list[Record]:
    """The run's trajectories up to `quota` bytes of JSON, in their order."""
    kept = []
    for row in run.shown:
        quota -= len(json.dumps(row))
        if quota < 0:
            break
        kept.append(row)
    return kept


def viewer(data: Record) -> str:
    """The viewer's frame, with a sentence on how many trajectories are in the page."""
    told = "; ".join(
        f"{escape(run['label'])} on {escape(run['subset'])} {len(run['shown']):,} of {run['total']:,}"
        for run in data["runs"]
    )
    shown = f"In this page, drawn by a hash of the instance id: {told}. Long texts are cut and say so."
    return Template((PAGE / "viewer.html").read_text(encoding="utf-8")).substitute(shown=shown)


def embedded(data: Record) -> str:
    """JSON that is inert inside a script element: no <, > or &, and nothing outside ASCII."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def source_hash(text: str) -> str:
    """The hash source of an inline script or style, as a content security policy writes it."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
