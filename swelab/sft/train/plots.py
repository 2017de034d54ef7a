"""Training runs as one SVG that stands alone: a panel a measure, a line a run, over the tokens seen.

Values of many steps are averaged in equal bins. Every run has a colour and a dash of its own.
"""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

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
DASHES = ("", "6 4", "2 3", "9 3 2 3", "1 2", "12 4")
WIDTH, HEIGHT, GAP, ACROSS, TOP = 360, 190, 64, 2, 46
BINS = 300

Run = Sequence[Mapping[str, Any]]


def plot(runs: Mapping[str, Run]) -> str:
    """An SVG document of the runs' metrics rows by name; a measure that no run has is left out."""
    panels = []
    for column, title, factor in PANELS:
        lines = {name: _points(rows, column, factor) for name, rows in runs.items()}
        if any(lines.values()):
            panels.append((title, lines))
    down = -(-len(panels) // ACROSS)
    width, height = ACROSS * (WIDTH + GAP) + GAP // 2, TOP + down * (HEIGHT + GAP)
    body = _legend(list(runs))
    for number, (title, lines) in enumerate(panels):
        x, y = GAP + number % ACROSS * (WIDTH + GAP), TOP + number // ACROSS * (HEIGHT + GAP)
        body += f'<g transform="translate({x} {y})">{_panel(title, lines)}</g>'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="12"><rect width="100%" height="100%" '
        f'fill="white"/>{body}</svg>\n'
    )


def _points(rows: Run, column: str, factor: float) -> list[tuple[float, float]]:
    """(tokens seen, value) in at most BINS bins; what is not finite is left out."""
    found = [
        (float(row.get("tokens_seen") or row["step"]), factor * float(row[column]))
        for row in rows
        if row.get(column) is not None and math.isfinite(float(row[column]))
    ]
    size = max(1, -(-len(found) // BINS))
    bins = [found[start : start + size] for start in range(0, len(found), size)]
    return [(sum(x for x, _ in part) / len(part), sum(y for _, y in part) / len(part)) for part in bins]


def _legend(names: Sequence[str]) -> str:
    body, x = "", GAP
    for number, name in enumerate(names):
        body += (
            f'<line x1="{x}" x2="{x + 34}" y1="16" y2="16" {_stroke(number)}/>'
            f'<text x="{x + 40}" y="20">{escape(name)}</text>'
        )
        x += 60 + 8 * len(name)
    return body


def _stroke(number: int) -> str:
    colour, dash = COLOURS[number % len(COLOURS)], DASHES[number % len(DASHES)]
    return f'fill="none" stroke="{colour}" stroke-width="1.8" stroke-dasharray="{dash}"'


def _panel(title: str, lines: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    points = [point for line in lines.values() for point in line]
    right = max(x for x, _ in points) or 1.0
    top = max(max(y for _, y in points), 0.0) or 1.0
    bottom = min(min(y for _, y in points), 0.0)
    body = f'<text x="0" y="-8" font-weight="bold">{escape(title)}</text>'
    for tick in _ticks(bottom, top):
        y = HEIGHT * (top - tick) / (top - bottom)
        body += f'<line x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        body += f'<text x="-6" y="{y + 4:.1f}" text-anchor="end" fill="#444">{tick:g}</text>'
    for tick in _ticks(0, right):
        x = WIDTH * tick / right
        body += f'<text x="{x:.1f}" y="{HEIGHT + 16}" text-anchor="middle" fill="#444">{_short(tick)}</text>'
    body += f'<text x="{WIDTH}" y="{HEIGHT + 32}" text-anchor="end" fill="#444">tokens seen</text>'
    for number, (name, line) in enumerate(lines.items()):
        path = " ".join(f"{WIDTH * x / right:.1f},{HEIGHT * (top - y) / (top - bottom):.1f}" for x, y in line)
        body += f'<polyline points="{path}" {_stroke(number)}><title>{escape(name)}</title></polyline>'
    return body


def _ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, about five."""
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]


def _short(value: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
