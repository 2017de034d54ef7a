"""Draws small charts as inline SVG. Positions are in per cent and text is in pixels, to fit any width.

The style sheet of the page or figure defines colours for classes (`series-0` ..., `status-resolved` ...).
Each series also has its own marker shape, dash or pattern. No element has a style attribute, because the
page's content security policy would block it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

SERIES = 6
"""Number of series classes in the style sheet. Series with higher numbers reuse the classes from the
start."""
TICKS = 5
POINTS = 300
"""Maximum number of points of a curve. In a longer curve, neighbouring points are averaged in equal bins."""
CURVE_HEIGHT = 190

Points = Sequence[tuple[float, float]]
Bin = tuple[float, float, float, float]
"""(step, mean, minimum, maximum) of neighbouring points that are drawn as one point."""


def svg(body: str, title: str, height: int, css: str = "plot") -> str:
    """Returns an SVG figure as wide as its container and `height` pixels high. title: read by screen
    readers."""
    return (
        f'<svg class="{css}" width="100%" height="{height}" role="img" aria-label="{escape(title)}">'
        f"<title>{escape(title)}</title>{body}</svg>"
    )


def percent(share: float) -> str:
    """Formats a share between 0 and 1 as a length in per cent."""
    return f"{round(100 * share, 3):g}%"


def marker(series: int, x: float, y: str) -> str:
    """Draws the marker of a series (a circle, disc, square, diamond, triangle or bar) at share `x` of the
    width."""
    shapes = (
        '<circle r="5.5" class="hollow"/>',
        '<circle r="6"/>',
        '<rect x="-5" y="-5" width="10" height="10"/>',
        '<path d="M0-7 7 0 0 7-7 0Z"/>',
        '<path d="M0-7 6.5 5H-6.5Z"/>',
        '<rect x="-2" y="-7" width="4" height="14"/>',
    )
    shape = shapes[series % SERIES]
    css = f"mark series-{series % SERIES}"
    return f'<svg x="{percent(x)}" y="{y}" overflow="visible" class="{css}">{shape}</svg>'


def legend_mark(series: int) -> str:
    """Draws a series' marker alone, for tables and legends."""
    body = marker(series, 0.5, "50%")
    return f'<svg class="key" width="16" height="16" aria-hidden="true" focusable="false">{body}</svg>'


def legend_swatch(css: str) -> str:
    """Draws a filled square with the class `css`, for legends."""
    return (
        f'<svg class="key" width="16" height="16" aria-hidden="true" focusable="false">'
        f'<rect class="{css}" width="16" height="16"/></svg>'
    )


def whisker(series: int, rate: float, interval: tuple[float, float], title: str) -> str:
    """Draws a rate with its confidence interval on an axis from 0 to 1."""
    low, high = interval
    grid = "".join(
        f'<line class="grid" x1="{percent(t)}" x2="{percent(t)}" y1="0" y2="100%"/>' for t in quarters()
    )
    ends = "".join(
        f'<line class="whisker" x1="{percent(x)}" x2="{percent(x)}" y1="11" y2="21"/>' for x in (low, high)
    )
    line = f'<line class="whisker" x1="{percent(low)}" x2="{percent(high)}" y1="16" y2="16"/>'
    spread = f'<g class="series-{series % SERIES}">{line}{ends}</g>'
    return svg(f"{grid}{spread}{marker(series, rate, '16')}", title, 32)


def share_axis(title: str = "") -> str:
    """Draws the axis from 0 to 100 % below whiskers and stacked bars."""
    ticks = "".join(
        f'<text class="tick" x="{percent(t)}" y="12" text-anchor="{anchor(t)}">{round(100 * t)}</text>'
        for t in quarters()
    )
    label = f'<text class="tick" x="50%" y="27" text-anchor="middle">{escape(title)}</text>' if title else ""
    height = 30 if title else 16
    return f'<svg class="axis" width="100%" height="{height}" aria-hidden="true">{ticks}{label}</svg>'


def quarters() -> tuple[float, ...]:
    """Returns the tick positions on an axis from 0 to 1."""
    return (0.0, 0.25, 0.5, 0.75, 1.0)


def anchor(share: float) -> str:
    """Returns the `text-anchor` of a tick's label. The first and the last label stay inside the figure."""
    return "start" if share <= 0 else "end" if share >= 1 else "middle"


def stacked_bar(counts: Mapping[str, int], title: str, names: Mapping[str, str]) -> str:
    """Draws one horizontal bar of shares, in the order of `counts`. The class of each part is
    `status-<name>`. names: maps a name to the label of its part."""
    total, left, body = sum(counts.values()), 0, ""
    for name, count in counts.items():
        if count:
            told = f"{names.get(name, name)}: {count:,} of {total:,} ({count / total:.1%})"
            body += (
                f'<rect class="status-{escape(name)}" x="{percent(left / total)}" y="0" height="100%" '
                f'width="{percent(count / total)}"><title>{escape(told)}</title></rect>'
            )
            left += count
    return svg(body, title, 22, "stack")


def histogram(
    values: Mapping[int, int],
    title: str,
    axes: tuple[str, str],
    series: int = 1,
    bins: int = 24,
    mark: int | None = None,
) -> str:
    """Draws a histogram. values: maps a number to its count. mark: value at which a limit line is drawn.
    axes: the names of the horizontal and the vertical axis."""
    edges, heights = bin_counts(values, bins, mark)
    first, span, top = edges[0], edges[-1] - edges[0], max(heights)
    body = y_axis(nice_ticks(0, top), 0, top)
    for low, high, height in zip(edges, edges[1:], heights):
        if height:
            inside = f"{low:,}" if high - low == 1 else f"{low:,} to {high - 1:,}"
            body += (
                f'<rect class="series-{series % SERIES} bar" x="{percent((low - first) / span)}" '
                f'width="{percent((high - low) / span * 0.92)}" y="{percent(1 - height / top)}" '
                f'height="{percent(height / top)}"><title>{inside}: {height:,}</title></rect>'
            )
    labels = [edge for edge in nice_ticks(first, edges[-1] - 1) if edge == int(edge)]
    half = 0.46 if edges[1] - edges[0] == 1 else 0
    body += x_axis(labels, first - half, first - half + span)
    if mark is not None:
        at = percent((mark - first) / span)
        body += f'<line class="limit" x1="{at}" x2="{at}" y1="0" y2="100%"/>'
    return svg(body + axis_names(axes), title, 150)


def bin_counts(values: Mapping[int, int], bins: int, mark: int | None = None) -> tuple[list[int], list[int]]:
    """Returns (edges, counts). The edges are whole numbers with equal steps. counts[i] counts the values v
    with edges[i] <= v < edges[i + 1]."""
    low, high = min(values), max([*values, mark or 0])
    step = max(1, math.ceil((high + 1 - low) / bins))
    if step > 1:
        low -= low % step
    edges = list(range(low, high + step + 1, step))
    heights = [0] * (len(edges) - 1)
    for value, count in values.items():
        heights[(value - low) // step] += count
    return edges, heights


def curve(points: Points, title: str, axes: tuple[str, str], series: int = 1) -> str:
    """Draws one curve; see `curves`."""
    return curves({"": points}, title, axes, series)


def curves(
    lines: Mapping[str, Points | Sequence[Bin]],
    title: str,
    axes: tuple[str, str],
    series: int = 0,
    linear: bool = False,
) -> str:
    """Draws several curves. lines: maps a name to its points or bins.

    Points are averaged in bins of equal size. The range of each bin is drawn behind its mean. Bins that the
    caller gives, such as a rate with its interval, are not averaged again.

    axes: the names of the horizontal and the vertical axis. If the values span more than a factor of 30 and
    `linear` is false, the vertical axis is logarithmic, and its label says so. series: number of the first
    curve. The numbers of further curves follow. Points that are not finite are excluded, and the caller must
    report this. Returns "" if no point is left.
    """
    thin = [_bins(line) for line in lines.values()]
    rows = [row for line in thin for row in line]
    if not rows:
        return ""
    top, bottom = max(row[3] for row in rows), min(row[2] for row in rows)
    logarithmic = not linear and bottom > 0 and top / bottom > 30
    names = (axes[0], f"{axes[1]}, log scale" if logarithmic else axes[1])
    ticks = decades(bottom, top) if logarithmic else nice_ticks(0, top)
    low, high = min(ticks[0], bottom), max(ticks[-1], top)
    high = high if high > low else low + 1
    scale = math.log if logarithmic else float
    first = min(row[0] for row in rows)
    last = max(first + 1, *(row[0] for row in rows))

    def at(step: float, value: float) -> str:
        across = 1000 * (step - first) / (last - first)
        up = (scale(value) - scale(low)) / (scale(high) - scale(low))
        return f"{across:.1f} {1000 * (1 - up):.1f}"

    inner = "".join(
        _curve(line, at, name, number) for number, (name, line) in enumerate(zip(lines, thin), series) if line
    )
    scales = y_axis(ticks, low, high, logarithmic) + x_axis(nice_ticks(first, last), first, last)
    return svg(scales + inner + axis_names(names), title, CURVE_HEIGHT)


def _bins(line: Points | Sequence[Bin]) -> Sequence[Bin]:
    bins = [row for row in line if len(row) == 4]
    return bins or average_bins([(row[0], row[1]) for row in line if math.isfinite(row[1])])


def _curve(rows: Sequence[Bin], at: Callable[[float, float], str], name: str, series: int) -> str:
    band = [at(step, most) for step, _, _, most in rows]
    band += [at(step, least) for step, _, least, _ in rows[::-1]]
    mean = " ".join(at(step, value) for step, value, _, _ in rows)
    named = f"><title>{escape(name)}</title></polyline>" if name else "/>"
    return (
        f'<svg viewBox="0 0 1000 1000" preserveAspectRatio="none" width="100%" height="100%" '
        f'overflow="visible" class="series-{series % SERIES}">'
        f'<polygon class="band" points="{" ".join(band)}"/>'
        f'<polyline class="curve" vector-effect="non-scaling-stroke" points="{mean}"{named}</svg>'
    )


def axis_names(names: tuple[str, str]) -> str:
    """Draws the horizontal axis's name below its right end, and the vertical axis's name above its top."""
    across, up = map(escape, names)
    return (
        f'<text class="tick name" x="100%" y="100%" dy="33" text-anchor="end">{across}</text>'
        f'<text class="tick name" x="-38" y="-12">{up}</text>'
    )


def average_bins(points: Points) -> list[Bin]:
    """Averages neighbouring points in at most POINTS bins of equal size."""
    size = max(1, math.ceil(len(points) / POINTS))
    rows = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        values = [value for _, value in part]
        rows.append(
            (sum(step for step, _ in part) / len(part), sum(values) / len(values), min(values), max(values))
        )
    return rows


def nice_ticks(low: float, high: float) -> list[float]:
    """Returns at most TICKS + 1 round numbers between `low` and `high`."""
    span = (high - low) or abs(high) or 1.0
    raw = span / TICKS
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    start = math.ceil(low / step - 1e-9)
    return [round(k * step, 10) for k in range(start, math.floor(high / step + 1e-9) + 1)]


def decades(low: float, high: float) -> list[float]:
    """Returns the powers of ten between `low` and `high`, or [low, high] if there are fewer than two."""
    powers = [10.0**k for k in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]
    return powers if len(powers) > 1 else [low, high]


def y_axis(ticks: Sequence[float], low: float, high: float, logarithmic: bool = False) -> str:
    """Draws the grid lines and labels of a vertical axis from `low` to `high`."""
    scale = math.log if logarithmic else float
    span = (scale(high) - scale(low)) or 1.0
    body = ""
    for tick in ticks:
        y = percent(1 - (scale(tick) - scale(low)) / span)
        body += f'<line class="grid" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
        body += f'<text class="tick" x="-8" y="{y}" dy="4" text-anchor="end">{short(tick)}</text>'
    return body


def x_axis(ticks: Sequence[float], low: float, high: float) -> str:
    """Draws the labels of a horizontal axis from `low` to `high`."""
    span = (high - low) or 1.0
    return "".join(
        f'<text class="tick" x="{percent((tick - low) / span)}" y="100%" dy="17" text-anchor="middle">'
        f"{short(tick)}</text>"
        for tick in ticks
    )


def short(value: float) -> str:
    """Formats a tick's number briefly: 12k instead of 12000."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size * (10 if unit == "k" else 1):
            return f"{value / size:g}{unit}"
    return f"{value:.3g}" if abs(value) < 1 else f"{value:,.10g}"
