"""Intervals and tests compared with published values, or with values worked out by hand."""

import itertools
from math import comb

import pytest

from swelab.records import InputError
from swelab.scores.statistics.one_rate import wilson
from swelab.scores.statistics.paired_rates import (
    PairCounts,
    detectable_difference,
    mcnemar_exact,
    pair,
    paired_interval,
)

AIRWAYS = PairCounts(both=1, gained=7, lost=1, neither=12)
"""Bentur et al. 2009 as tabled by Fagerland, Lydersen and Laake 2014, Statistics in Medicine 33:2850."""
THERAPY = PairCounts(both=59, gained=16, lost=6, neither=80)
"""Cavo et al. 2012 as tabled by Fagerland, Lydersen and Laake 2013, BMC Med Res Methodol 13:91."""


@pytest.mark.parametrize(
    ("resolved", "total", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_gives_newcombes_table(resolved, total, low, high):
    """Table I of Newcombe 1998, Statistics in Medicine 17:857-872, method 3."""
    assert wilson(resolved, total) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@pytest.mark.parametrize("total", [1, 7, 500, 50_000])
def test_wilson_at_the_ends(total):
    low, high = wilson(0, total)
    assert low == 0 and 0 < high < 1
    assert wilson(total, total) == (pytest.approx(1 - high), 1.0)


@pytest.mark.parametrize(("resolved", "total"), [(0, 0), (3, 2), (-1, 2)])
def test_wilson_refuses_what_is_no_rate(resolved, total):
    with pytest.raises(InputError, match="expected"):
        wilson(resolved, total)


@pytest.mark.parametrize(
    ("gained", "lost", "p"),
    [(7, 1, 18 / 256), (16, 6, 0.0525), (6, 0, 2 / 64), (0, 6, 2 / 64), (5, 5, 1), (0, 0, 1)],
)
def test_mcnemar_exact(gained, lost, p):
    assert mcnemar_exact(gained, lost) == pytest.approx(p, abs=5e-5)


def test_mcnemar_is_the_two_sided_binomial_sum():
    for gained, lost in itertools.product(range(9), repeat=2):
        n, smaller = gained + lost, min(gained, lost)
        tail = sum(comb(n, k) for k in range(smaller + 1)) / 2**n
        assert mcnemar_exact(gained, lost) == pytest.approx(min(1, 2 * tail))


def test_paired_interval_gives_published_values():
    low, high = paired_interval(AIRWAYS)
    assert (round(low, 3), round(high, 3)) == (0.026, 0.507)
    marijuana = PairCounts(
        both=14, gained=5, lost=0, neither=22
    )  # Altman et al. 2000, Statistics with Confidence, 6.2
    assert [round(limit, 3) for limit in paired_interval(marijuana)] == [0.011, 0.226]


@pytest.mark.parametrize("cells", list(itertools.product((0, 1, 5), repeat=4)))
def test_paired_interval_holds_the_difference_and_mirrors(cells):
    pairs = PairCounts(*cells)
    if not pairs.total:
        return
    low, high = paired_interval(pairs)
    assert -1 <= low <= pairs.difference + 1e-9 and pairs.difference - 1e-9 <= high <= 1
    mirrored = paired_interval(PairCounts(pairs.both, pairs.lost, pairs.gained, pairs.neither))
    assert mirrored == (pytest.approx(-high), pytest.approx(-low))


def test_pair_counts_each_cell():
    first = {"a": True, "b": False, "c": True, "d": False, "e": False}
    second = {"e": True, "d": False, "c": False, "b": True, "a": True}
    assert pair(first, second) == PairCounts(both=1, gained=2, lost=1, neither=1)


def test_pair_names_ids_of_one_side():
    with pytest.raises(InputError, match="only in the first policy's score: left"):
        pair({"left": True, "x": True}, {"x": True})
    with pytest.raises(InputError, match="only in the second policy's score: r0, r1, r2, r3, r4 and 3 more"):
        pair({}, {f"r{number}": True for number in range(8)})
    with pytest.raises(InputError, match="no tasks"):
        pair({}, {})


def test_detectable_difference_solves_connors_sample_size():
    """Connor 1987: n = (z_a sqrt(psi) + z_b sqrt(psi - d^2))^2 / d^2."""
    found = detectable_difference(THERAPY)
    share = 22 / 161
    needed = (1.959964 * share**0.5 + 0.841621 * (share - found**2) ** 0.5) ** 2 / found**2
    assert needed == pytest.approx(161, rel=1e-5)


def test_detectable_difference_shrinks_with_tasks_and_may_not_exist():
    many = PairCounts(both=590, gained=160, lost=60, neither=800)
    assert detectable_difference(many) < detectable_difference(THERAPY)
    assert detectable_difference(PairCounts(5, 0, 0, 5)) is None
    assert detectable_difference(PairCounts(1, 1, 0, 1)) is None
