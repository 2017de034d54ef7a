"""The picture of the experiment: what was made from what, and how many of each."""

from dataclasses import dataclass
from html import escape

from swelab.scores.report.report_data import Evidence

WIDTH, HEIGHT, GAP = 168, 72, 24
TALL_WIDTH, TALL_HEIGHT, TALL_GAP = 170, 72, 26


@dataclass(frozen=True)
class Node:
    """One artifact: a key, what it is, its count, and a path; column and row in both layouts."""

    key: str
    title: str
    count: str
    path: str
    wide: tuple[int, int]
    tall: tuple[int, int]
    kind: str = ""


def nodes_and_edges(evidence: Evidence) -> tuple[list[Node], list[tuple[str, str]]]:
    """The artifacts of the experiment with their counts, and which is made from which."""
    verified, sft = evidence.verified, evidence.experiment["sft"]
    first, second = verified["comparison"]["from"], verified["comparison"]["to"]
    runs = evidence.expert_runs
    total, resolved = sum(run.total for run in runs), sum(run.resolved for run in runs)
    tasks = sum(run.total // run.samples for run in runs)
    submitted = sum(run.report.get("outcomes", {}).get("submitted", 0) for run in runs)
    rows = f"{len(evidence.lengths):,}" if evidence.lengths else "not recorded"
    scale = parameters(evidence)

    sides = [verified, *verified["others"]]
    names = ", ".join(side["benchmark"]["name"] for side in sides)
    size = sum(side["benchmark"]["size"] for side in sides)

    def rate(policy: str) -> str:
        rates = ", ".join(f"{side['policies'][policy]['resolve_rate']:.1%}" for side in sides)
        return rates + " resolved" * (len(sides) == 1)

    nodes = [
        Node("tasks", "Train tasks", f"{tasks:,}", "tasks/", (0, 0), (0, 0)),
        Node(
            "rollouts",
            "Trajectories",
            f"{submitted:,} submitted",
            f"by {evidence.label(evidence.layout.expert)}",
            (1, 0),
            (0, 1),
        ),
        Node("graded", "Graded", f"{resolved:,} resolved", f"of {total:,}", (2, 0), (0, 2)),
        Node("rows", "SFT rows", rows, f"sft/{sft}/dataset.jsonl", (3, 0), (0, 3)),
        Node("base", "Base model", scale or "pretrained", "models/", (3, 1), (1, 3)),
        Node("checkpoint", "Fine-tuned model", "checkpoint", f"sft/{sft}/checkpoint/", (4, 0), (0, 4)),
        Node("bench", "Held-out benchmarks", f"{size:,} tasks", names, (4, 2), (1, 4)),
        Node("second", f"Score of {evidence.label(second)}", rate(second), "scores/", (5, 0), (0, 5), "end"),
        Node("first", f"Score of {evidence.label(first)}", rate(first), "scores/", (5, 1), (1, 5), "end"),
    ]
    edges = [("tasks", "rollouts"), ("rollouts", "graded"), ("graded", "rows"), ("rows", "checkpoint"),
             ("base", "checkpoint"), ("checkpoint", "second"), ("base", "first"),
             ("bench", "first"), ("bench", "second")]  # fmt: skip
    return nodes, edges


def parameters(evidence: Evidence) -> str:
    """The size of the base model as its manifest tells it, or ''."""
    for model in evidence.layout.models:
        count = evidence.manifest(evidence.layout.model_manifest(model)).get("parameters")
        if isinstance(count, int):
            return f"{count / 1e6:,.2g} M parameters" if count < 1e9 else f"{count / 1e9:,.2g} G parameters"
    return ""


def picture(evidence: Evidence) -> str:
    """Two drawings of the same graph; the style sheet shows the one that fits the width."""
    nodes, edges = nodes_and_edges(evidence)
    told = "; ".join(f"{node.title}: {node.count}" for node in nodes)
    return wide(nodes, edges, told) + tall(nodes, edges, told)


def wide(nodes: list[Node], edges: list[tuple[str, str]], told: str) -> str:
    """The graph from left to right."""
    place = {node.key: (node.wide[0] * (WIDTH + GAP), node.wide[1] * (HEIGHT + GAP)) for node in nodes}
    lines = ""
    for source, target in edges:
        (x, y), (to_x, to_y) = place[source], place[target]
        start, end = (x + WIDTH, y + HEIGHT / 2), (to_x - 5, to_y + HEIGHT / 2)
        bend = to_x - GAP / 2
        lines += f'<path class="edge" d="M{start[0]} {start[1]}H{bend}V{end[1]}H{end[0]}"/>'
    size = (max(x for x, _ in place.values()) + WIDTH, max(y for _, y in place.values()) + HEIGHT)
    return drawing("wide", lines, nodes, place, (WIDTH, HEIGHT), size, told)


def tall(nodes: list[Node], edges: list[tuple[str, str]], told: str) -> str:
    """The graph from top to bottom, in two columns."""
    place = {
        node.key: (node.tall[0] * (TALL_WIDTH + 14), node.tall[1] * (TALL_HEIGHT + TALL_GAP))
        for node in nodes
    }
    lines = ""
    for source, target in edges:
        (x, y), (to_x, to_y) = place[source], place[target]
        if (source, target) == ("base", "first"):
            lane = x + TALL_WIDTH + 8
            middle = y + TALL_HEIGHT / 2
            turn = f"V{to_y + TALL_HEIGHT / 2}H{to_x + TALL_WIDTH + 5}"
            lines += f'<path class="edge" d="M{x + TALL_WIDTH} {middle}H{lane}{turn}"/>'
            continue
        start, end = (x + TALL_WIDTH / 2, y + TALL_HEIGHT), (to_x + TALL_WIDTH / 2, to_y - 5)
        bend = to_y - TALL_GAP / 2
        lines += f'<path class="edge" d="M{start[0]} {start[1]}V{bend}H{end[0]}V{end[1]}"/>'
    size = (2 * TALL_WIDTH + 14 + 14, max(y for _, y in place.values()) + TALL_HEIGHT)
    return drawing("tall", lines, nodes, place, (TALL_WIDTH, TALL_HEIGHT), size, told)


def drawing(
    css: str,
    lines: str,
    nodes: list[Node],
    place: dict[str, tuple[int, int]],
    box: tuple[int, int],
    size: tuple[int, int],
    told: str,
) -> str:
    """Boxes over lines, as one SVG that scales with its width."""
    arrow = (
        f'<defs><marker id="arrow-{css}" viewBox="0 0 8 8" refX="3" refY="4" markerWidth="8" '
        f'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path class="tip" d="M0 0 8 4 0 8Z"/>'
        "</marker></defs>"
    )
    boxes = ""
    for node in nodes:
        x, y = place[node.key]
        boxes += (
            f'<g transform="translate({x} {y})">'
            f'<rect class="node {node.kind}" width="{box[0]}" height="{box[1]}" rx="3"/>'
            f'<text class="node-title" x="12" y="22">{clipped(node.title, 21)}</text>'
            f'<text class="node-count" x="12" y="42">{clipped(node.count, 20)}</text>'
            f'<text class="node-path" x="12" y="61">{clipped(node.path, 22)}</text></g>'
        )
    lines = lines.replace("/>", f' marker-end="url(#arrow-{css})"/>')
    return (
        f'<svg class="pipeline {css}" viewBox="-1 -1 {size[0] + 2} {size[1] + 2}" role="img" '
        f'aria-label="{escape(told)}"><title>From tasks to scores</title><desc>{escape(told)}</desc>'
        f"{arrow}{lines}{boxes}</svg>"
    )


def clipped(text: str, limit: int) -> str:
    """`text` escaped, with an ellipsis where it would leave its box."""
    return escape(text if len(text) <= limit else text[: limit - 1] + "\u2026")
