"""Rows are divided into passes: no other division of a step is faster, and ranks have equal work."""

import itertools
import random

import numpy as np
import pytest

from swelab.sft.train.grouping import deal, padded_tokens


def curved(rows, tokens):
    """A time that grows faster than the number of tokens."""
    return 5000 + rows * (tokens + tokens**2 / 300)


def cuts(rows, runs):
    """Yields every division of a list into this number of runs."""
    for places in itertools.combinations(range(1, len(rows)), runs - 1):
        yield [rows[a:b] for a, b in itertools.pairwise([0, *places, len(rows)])]


def time_of(passes, lengths, ranks, cost):
    """Returns the time of a step. Ranks wait for the slowest one in each turn."""
    each = [float(cost(np.array(len(run)), np.array(max(lengths[row] for row in run)))) for run in passes]
    return sum(each) if ranks == 1 else max(each) * len(passes) / ranks


def fits(run, lengths, bound):
    return len(run) == 1 or len(run) * max(lengths[row] for row in run) <= bound


@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("bound", [100, 900, 10**6])
@pytest.mark.parametrize("cost", [padded_tokens, curved])
@pytest.mark.parametrize("seed", range(4))
def test_no_cut_takes_less_time(ranks, bound, cost, seed):
    chance = random.Random(seed)
    lengths = [int(chance.lognormvariate(0, 0.8) * 150) + 1 for _ in range(24)]
    steps = [list(range(start, start + 8)) for start in (0, 8, 16)]
    dealt, passes = deal(steps, lengths, bound, ranks, cost)
    assert [sorted(row for run in runs for row in run) for runs in dealt] == steps
    assert all(len(runs) == passes * ranks for runs in dealt)
    assert all(fits(run, lengths, bound) for runs in dealt for run in runs)

    def best(rows, count):
        ordered = sorted(rows, key=lambda row: -lengths[row])
        fitting = [runs for runs in cuts(ordered, count) if all(fits(run, lengths, bound) for run in runs)]
        return min((time_of(runs, lengths, ranks, cost) for runs in fitting), default=float("inf"))

    least = min(sum(best(rows, turns * ranks) for rows in steps) for turns in range(1, 8 // ranks + 1))
    assert sum(time_of(runs, lengths, ranks, cost) for runs in dealt) == pytest.approx(least)


def test_a_pass_for_all_where_passes_are_dear_and_one_for_each_where_padding_is():
    lengths = [10, 200, 30, 400]
    assert deal([[0, 1, 2, 3]], lengths, 10**6, 1, lambda rows, tokens: 10**6 + rows * tokens) == (
        [[[3, 1, 2, 0]]],
        1,
    )
    assert deal([[0, 1, 2, 3]], lengths, 10**6, 1, lambda rows, tokens: rows * tokens)[1] == 4
