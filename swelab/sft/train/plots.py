"""Plots training runs as a self-contained SVG: a panel per measure, a line per run, over tokens seen."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from swelab.files.svg_charts import CURVE_HEIGHT, curves

PANELS = (
    ("loss", "loss", 1.0),
    ("tokens_per_second", "tokens a second", 1.0),
    ("trained_tokens_per_second", "tokens with loss a second", 1.0),
    ("trained_share", "tokens with loss, %", 100.0),
    ("padding_share", "padding, %", 100.0),
    ("mfu", "MFU, %", 100.0),
    ("peak_memory_mib", "peak memory, MiB", 1.0),
    ("lr", "learning rate", 1.0),
)
"""Column, title, factor."""
COLOURS = ("#1b6ca8", "#c4500b", "#3a7d34", "#7a3f9d", "#8a6d00", "#555555")
DASHES = ("none", "6 4", "2 3", "9 3 2 3", "1 2", "12 4")
STYLE = (
    "text{font:12px sans-serif;fill:#444}.plot{overflow:visible}.grid{stroke:#ddd}.name{font-weight:bold}"
    ".curve{fill:none;stroke:currentColor;stroke-width:1.8}.band{fill:currentColor;fill-opacity:.15}"
) + "".join(
    f".series-{n}{{color:{colour}}}.series-{n} .curve{{stroke-dasharray:{dash}}}"
    for n, (colour, dash) in enumerate(zip(COLOURS, DASHES))
)
WIDTH, GAP, ACROSS, TOP = 360, 64, 2, 46


def plot(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Returns an SVG document.

    runs: maps the name of a run to its rows of metrics.tsv. A measure that no run has is omitted. Values may
    be text, as `csv.DictReader` returns them. Empty text is an unknown value.
    """
    panels = []
    for column, title, factor in PANELS:
        lines = {
            name: [
                (float(row.get("tokens_seen") or row["step"]), factor * float(row[column]))
                for row in rows
                if row.get(column) not in (None, "")
            ]
            for name, rows in runs.items()
        }
        panels.append(curves(lines, title, ("tokens seen", title), linear=True))
    panels, body = [panel for panel in panels if panel], _legend(runs)
    for number, panel in enumerate(panels):
        x, y = GAP + number % ACROSS * (WIDTH + GAP), TOP + number // ACROSS * (CURVE_HEIGHT + GAP)
        body += (
            f'<svg x="{x}" y="{y}" width="{WIDTH}" height="{CURVE_HEIGHT}" overflow="visible">{panel}</svg>'
        )
    width, height = ACROSS * (WIDTH + GAP) + GAP // 2, TOP + -(-len(panels) // ACROSS) * (CURVE_HEIGHT + GAP)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}"><style>{STYLE}</style><rect width="100%" height="100%" fill="white"/>{body}'
        "</svg>\n"
    )


def _legend(names: Mapping[str, Any]) -> str:
    body, x = "", GAP
    for number, name in enumerate(names):
        body += (
            f'<g class="series-{number % len(COLOURS)}"><line class="curve" x1="{x}" x2="{x + 34}" y1="16" '
            f'y2="16"/></g><text x="{x + 40}" y="20">{escape(name)}</text>'
        )
        x += 60 + 8 * len(name)
    return body
