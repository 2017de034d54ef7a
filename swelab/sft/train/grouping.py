"""Deals the rows of each step into forward passes by length, so that the steps take least time.

Rows of one pass are padded to the longest of them, and a pass costs something however short it is. A step's
rows are sorted by length and cut into runs. Dynamic programming finds the cut of the least estimated time.
Ranks wait for each other: with several, a step takes the time of its longest run times the passes of a rank.
All steps have the same number of passes, the best one for all steps together.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Cost = Callable[[Floats, Floats], Floats]
"""(rows, tokens of the longest) to the time of a pass forward and backward, in any unit."""


def padded_tokens(rows: Floats, tokens: Floats) -> Floats:
    """Tokens with padding, and 64 for the pass itself."""
    return 64 + rows * tokens


def deal(
    steps: Sequence[Sequence[int]], lengths: Sequence[int], bound: int, ranks: int, cost: Cost
) -> tuple[list[list[list[int]]], int]:
    """(passes of each step, passes of a rank). Passes that ranks do at the same time stand side by side.

    steps: row numbers; all steps have the same number of rows, a multiple of `ranks`. bound: tokens of a pass
    with padding; a longer row goes alone. lengths: tokens of each row.
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
    """Cost of the run that starts at row j and ends before row i, at [j, i]; infinite where there is none.

    lengths: [rows], the longest first.
    """
    count = len(lengths)
    rows = np.arange(count + 1)[None, :] - np.arange(count)[:, None]
    tokens = np.broadcast_to(lengths[:, None], rows.shape)
    fits = (rows == 1) | ((rows > 1) & (rows * tokens <= bound))
    return np.where(fits, cost(rows.astype(float), tokens), np.inf)


def _cuts(costs: Floats, groups: int, ranks: int) -> tuple[Floats, list[NDArray[np.int64]]]:
    """Time of the best cut into 1, 2, ... `groups` runs; and for each number where the last run starts.

    costs: [rows, rows + 1], of `_costs`.
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
    """Rows cut as `_cuts` says, into as many runs as there are `starts`."""
    runs, end = [], len(rows)
    for start in reversed(starts):
        begin = int(start[end])
        runs.append(list(rows[begin:end]))
        end = begin
    return runs[::-1]
