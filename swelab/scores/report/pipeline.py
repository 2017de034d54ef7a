"""Draws the artifacts of an experiment with their counts, and arrows to the artifacts made from them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

from swelab.configs.kinds import RL
from swelab.outcomes import RolloutEnd
from swelab.records.score_records import BenchmarkResult
from swelab.scores.report.reinforcement import learned_names
from swelab.scores.report.report_data import ReportData
from swelab.scores.report.rl_training import RlTraining

TEXTS = (("node-title", "title", 21, 16), ("node-count", "count", 20, 18), ("node-path", "path", 22, 14))
"""The texts in a box, each as (CSS class, field, characters per line, pixels per line)."""
TOP, FOOT = 8, 12
"""Pixels above the first line of a box, and below the last."""


@dataclass(frozen=True)
class Way:
    """A layout of the graph: width of a box, gaps to the right and below, right margin, height of a box."""

    name: str
    width: int
    across: int
    down: int
    margin: int = 0
    height: int = 72


EDGES = [
    *(("tasks", "rollouts"), ("rollouts", "graded"), ("graded", "rows"), ("rows", "checkpoint")),
    *(("base", "checkpoint"), ("bench", "first"), ("bench", "second")),
]
"""The edges (source key, target key) that every experiment has."""
WEIGHTS = {"model": "base", "sft": "checkpoint", "rl": "learned"}
"""Maps the first word of a policy's `weights` to the node of the artifact that contains the weights."""
WIDE, TALL = Way("wide", 168, 24, 24), Way("tall", 170, 14, 26, margin=14)


@dataclass(frozen=True)
class Box:
    """One artifact: key, title, count, path, and its column and row in both layouts."""

    key: str
    title: str
    count: str
    path: str
    wide: tuple[int, int]
    tall: tuple[int, int]
    kind: str = ""


def edges_of(evidence: ReportData) -> list[tuple[str, str]]:
    """Returns the edges (source key, target key) between the artifacts of this experiment."""
    starts = {evidence.at.recipe(RL, name).start for name in learned_names(evidence)}
    made = [*zip(evidence.compared_weights, ("first", "second")), *((start, "learned") for start in starts)]
    nodes = [(WEIGHTS.get(weights.partition(":")[0]), target) for weights, target in made]
    return EDGES + [(node, target) for node, target in nodes if node]


def nodes_of(evidence: ReportData) -> list[Box]:
    """Returns the artifacts of the experiment with their counts."""
    verified, sft = evidence.verified, evidence.experiment.sft
    first, second = verified.comparison.from_policy, verified.comparison.to_policy
    runs = evidence.expert_runs
    total, resolved = sum(run.total for run in runs), sum(run.resolved for run in runs)
    tasks = sum(run.total // run.samples for run in runs)
    submitted = sum(run.report.get("outcomes", {}).get(RolloutEnd.SUBMITTED, 0) for run in runs)
    rows = f"{len(evidence.lengths):,}" if evidence.lengths else "not recorded"
    sides = [verified, *verified.others]
    names = ", ".join(side.benchmark.name for side in sides)
    size = sum(side.benchmark.size for side in sides)
    before, after = (resolve_rates(policy, sides) for policy in (first, second))
    by = f"by {evidence.label(evidence.expert)}"
    boxes = [
        Box("tasks", "Train tasks", f"{tasks:,}", "tasks/", (0, 0), (0, 0)),
        Box("rollouts", "Trajectories", f"{submitted:,} submitted", by, (1, 0), (0, 1)),
        Box("graded", "Graded", f"{resolved:,} resolved", f"of {total:,}", (2, 0), (0, 2)),
        Box("rows", "SFT rows", rows, f"sft/{sft}/dataset.jsonl", (3, 0), (0, 3)),
        Box("base", "Base model", parameters(evidence) or "pretrained", "models/", (3, 1), (1, 3)),
        Box("checkpoint", "Fine-tuned model", "checkpoint", f"sft/{sft}/checkpoint/", (4, 0), (0, 4)),
        Box("bench", "Held-out benchmarks", f"{size:,} tasks", names, (4, 2), (1, 4)),
        Box("second", f"Score of {evidence.label(second)}", after, "scores/", (5, 0), (0, 5), "end"),
        Box("first", f"Score of {evidence.label(first)}", before, "scores/", (5, 1), (1, 5), "end"),
    ]
    return with_learned(boxes, evidence) if learned_names(evidence) else boxes


def with_learned(boxes: list[Box], evidence: ReportData) -> list[Box]:
    """Returns the boxes, plus a box for reinforcement learning between the weights and their scores."""
    names = learned_names(evidence)
    steps = sum(row["step"] > 0 for name in names for row in evidence.rewarded.get(name, RlTraining()).steps)
    path = f"rl/{names[0]}/checkpoint/" if len(names) == 1 else "rl/"
    count = f"{steps:,} steps" if steps else "checkpoint"
    learned = Box("learned", "RL from test results", count, path, (4, 1), (0, 5))
    low = 1 if ("base", "first") in edges_of(evidence) else 0  # the arrow passes below the last box
    places = {"base": ((3, 1 + low), (1, 3)), "bench": ((4, 2 + low), (1, 5))}
    places |= {"first": ((5, 0), (1, 6)), "second": ((5, 1), (0, 6))}
    moved = [replace(each, wide=at[0], tall=at[1]) for each in boxes if (at := places.get(each.key))]
    return [each for each in boxes if each.key not in places] + [learned, *moved]


def resolve_rates(policy: str, sides: Sequence[BenchmarkResult]) -> str:
    """Returns the policy's resolve rate on each benchmark with a score, as text."""
    told = ", ".join(f"{side.policies[policy]['resolve_rate']:.1%}" for side in sides)
    return told + " resolved" * (len(sides) == 1)


def parameters(evidence: ReportData) -> str:
    """Returns the size of the base model from its manifest, or ''."""
    for model in evidence.models:
        count = evidence.manifest("model.manifest", model=model).get("parameters")
        if isinstance(count, int):
            return f"{count / 1e6:,.2g} M parameters" if count < 1e9 else f"{count / 1e9:,.2g} G parameters"
    return ""


def picture(evidence: ReportData) -> str:
    """Returns two drawings of the same graph. The style sheet shows the one that fits the page's width."""
    nodes, edges = nodes_of(evidence), edges_of(evidence)
    told = "; ".join(f"{node.title}: {node.count}" for node in nodes)
    ways = (replace(way, height=height(nodes)) for way in (WIDE, TALL))
    return "".join(drawing(way, nodes, edges, told) for way in ways)


def edge_path(way: Way, source: tuple[int, int], target: tuple[int, int]) -> str:
    """Returns the SVG path of an arrow between two boxes. Each box is given by its column and row."""
    (x, y), (to_x, to_y) = corner(way, source), corner(way, target)
    far = target[1] - source[1] > 1
    if way.name == "wide" and source[0] != target[0]:
        turn = f"H{to_x - way.across / 2}V{to_y + way.height / 2}H{to_x - 5}"
        return f"M{x + way.width} {y + way.height / 2}{turn}"
    if way.name == "tall" and far and source[0] == target[0]:  # passes to the right of the boxes in between
        turn = f"H{x + way.width + 8}V{to_y + way.height / 2}H{to_x + way.width + 5}"
        return f"M{x + way.width} {y + way.height / 2}{turn}"
    gap = f"V{y + way.height + way.down / 2}H{x + way.width + way.across / 2}" if far and to_x > x else ""
    return (
        f"M{x + way.width / 2} {y + way.height}{gap}V{to_y - way.down / 2}H{to_x + way.width / 2}V{to_y - 5}"
    )


def corner(way: Way, place: tuple[int, int]) -> tuple[int, int]:
    """Returns the upper left corner of the box at a column and row, in pixels."""
    return place[0] * (way.width + way.across), place[1] * (way.height + way.down)


def box(way: Way, node: Box, x: int, y: int) -> str:
    """Returns the SVG of a node whose upper left corner is at (x, y) pixels."""
    drawn, at = "", TOP
    for style, text, limit, pixels in TEXTS:
        for line in break_lines(getattr(node, text), limit):
            at += pixels
            drawn += f'<text class="{style}" x="12" y="{at}">{escape(line)}</text>'
    return (
        f'<g transform="translate({x} {y})">'
        f'<rect class="node {node.kind}" width="{way.width}" height="{way.height}" rx="3"/>{drawn}</g>'
    )


def height(nodes: Sequence[Box]) -> int:
    """Returns the height in pixels of a box that fits the texts of every node."""
    wanted = (
        sum(pixels * len(break_lines(getattr(node, text), limit)) for _, text, limit, pixels in TEXTS)
        for node in nodes
    )
    return TOP + max(wanted) + FOOT


def drawing(way: Way, nodes: list[Box], edges: Sequence[tuple[str, str]], caption: str) -> str:
    """Returns the boxes and their edges as one SVG that scales with its width."""
    place = {node.key: getattr(node, way.name) for node in nodes}
    lines = ""
    for source, target in edges:
        path = edge_path(way, place[source], place[target])
        lines += f'<path class="edge" d="{path}" marker-end="url(#arrow-{way.name})"/>'
    boxes = "".join(box(way, node, *corner(way, place[node.key])) for node in nodes)
    arrow = (
        f'<defs><marker id="arrow-{way.name}" viewBox="0 0 8 8" refX="3" refY="4" markerWidth="8" '
        f'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto"><path class="tip" d="M0 0 8 4 0 8Z"/>'
        "</marker></defs>"
    )
    right, low = corner(way, (max(x for x, _ in place.values()), max(y for _, y in place.values())))
    return (
        f'<svg class="pipeline {way.name}" viewBox="-1 -1 {right + way.width + way.margin + 2} '
        f'{low + way.height + 2}" role="img" '
        f'aria-label="{escape(caption)}"><title>From tasks to scores</title><desc>{escape(caption)}</desc>'
        f"{arrow}{lines}{boxes}</svg>"
    )


def break_lines(text: str, limit: int) -> list[str]:
    """Splits `text` into lines of at most `limit` characters, after a space, `/`, `-` or `_` if possible."""
    lines = []
    while len(text) > limit:
        at = max(text.rfind(mark, 0, limit) for mark in " /-_") + 1 or limit
        lines.append(text[:at].rstrip())
        text = text[at:]
    return [*lines, text]
