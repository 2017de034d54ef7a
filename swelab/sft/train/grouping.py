"""Groups the rows of each step into forward passes by length, so that steps take the least time.

The rows of a pass are padded to the longest row, and even a short pass has a fixed cost. The rows of a step
are sorted by length and divided into runs of neighbouring rows. Each run is one pass. Dynamic programming
finds the division with the least estimated time. Ranks wait for each other. So on several ranks, a step takes
the time of its slowest pass times the passes per rank. All steps have the same number of passes. This number
minimizes the time of all steps together.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Cost = Callable[[Floats, Floats], Floats]
"""Maps (number of rows, tokens of the longest row) to the time of a forward and backward pass."""


def padded_tokens(rows: Floats, tokens: Floats) -> Floats:
    """Returns the number of tokens with padding, plus 64 for the fixed cost of a pass."""
    return 64 + rows * tokens


def deal(
    steps: Sequence[Sequence[int]], lengths: Sequence[int], bound: int, ranks: int, cost: Cost
) -> tuple[list[list[list[int]]], int]:
    """Divides each step into forward passes. Returns (passes of each step, passes per rank).

    If ranks make several passes at the same time, these are adjacent in the list. steps: row indexes of each
    step. All steps have the same number of rows, a multiple of `ranks`. lengths: tokens of each row. bound:
    maximum tokens of a pass, including padding. A longer row is a pass by itself.
    """
    ordered = [sorted(rows, key=lambda row: (-lengths[row], row)) for rows in steps]
    costs = [_costs(np.array([lengths[row] for row in rows], dtype=float), bound, cost) for rows in ordered]
    most = len(ordered[0])
    totals = np.sum([_cuts(each, most, ranks)[0] for each in costs], axis=0)
    passes = 1 + int(np.argmin(totals[ranks - 1 :: ranks]))
    dealt = []
    for rows, each in zip(ordered, costs):
        starts = _cuts(each, passes * ranks, ranks)[1]
        groups = _runs(rows, starts)
        dealt.append(sorted(groups, key=lambda group: -lengths[group[0]] * len(group)))
    return dealt, passes


def _costs(lengths: Floats, bound: int, cost: Cost) -> Floats:
    """Returns an array [rows, rows + 1]. Element [j, i] is the time of a pass over the rows j to i - 1.

    The time is infinite if the pass has no row. It is also infinite if the pass has several rows and more
    tokens than `bound`. lengths: [rows], the longest first.
    """
    count = len(lengths)
    rows = np.arange(count + 1)[None, :] - np.arange(count)[:, None]
    tokens = np.broadcast_to(lengths[:, None], rows.shape)
    fits = (rows == 1) | ((rows > 1) & (rows * tokens <= bound))
    return np.where(fits, cost(rows.astype(float), tokens), np.inf)


def _cuts(costs: Floats, groups: int, ranks: int) -> tuple[Floats, list[NDArray[np.int64]]]:
    """Divides rows into 1, 2, ... `groups` runs. Returns (least time for each number of runs, starts).

    `starts[n][i]` concerns the best division of the first i rows into n + 1 runs. It is the index of the
    first row of the last run. costs: [rows, rows + 1], the result of `_costs`.
    """
    count = len(costs)
    best = np.full(count + 1, np.inf)
    best[0] = 0.0
    totals, starts = np.empty(groups), []
    join = np.add if ranks == 1 else np.maximum
    for number in range(groups):
        together = join(best[:count, None], costs)
        starts.append(np.argmin(together, axis=0))
        best = np.min(together, axis=0)
        totals[number] = best[count]
    if ranks > 1:
        totals *= np.arange(1, groups + 1) / ranks
    return totals, starts


def _runs(rows: Sequence[int], starts: Sequence[NDArray[np.int64]]) -> list[list[int]]:
    """Divides rows into as many runs as there are `starts`. starts: the result of `_cuts`."""
    runs, end = [], len(rows)
    for start in reversed(starts):
        begin = int(start[end])
        runs.append(list(rows[begin:end]))
        end = begin
    return runs[::-1]
