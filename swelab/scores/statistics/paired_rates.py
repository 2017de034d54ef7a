"""Compares two resolve rates on the same tasks: test, interval, and detectable difference."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import fsum, sqrt

from scipy.special import ndtri

from swelab.records import InputError
from swelab.scores.statistics.one_rate import CONFIDENCE, round_digits, wilson

POWER = 0.8

Rate = tuple[float, float, float]
"""A rate, and the lower and upper limits of its interval."""


def heads(tosses: int) -> Iterator[float]:
    """Yields the probabilities of 0, 1, ..., `tosses` heads of a fair coin, each exact up to the last bit."""
    ways, all_ways = 1, 2**tosses
    for found in range(tosses + 1):
        yield ways / all_ways
        ways = ways * (tosses - found) // (found + 1)


@dataclass(frozen=True)
class PairCounts:
    """Counts of tasks that two policies attempted.
    both: resolved by both. gained: only by the second. lost: only by the first. neither: by neither."""

    both: int
    gained: int
    lost: int
    neither: int

    @property
    def total(self) -> int:
        """Number of tasks on which both policies have a verdict."""
        return self.both + self.gained + self.lost + self.neither

    @property
    def difference(self) -> float:
        """Rate of the second policy minus the rate of the first, -1..1."""
        return (self.gained - self.lost) / self.total


def pair(first: Mapping[str, bool], second: Mapping[str, bool]) -> PairCounts:
    """Counts pairs of verdicts. Each side maps an instance id to whether the instance is resolved.
    Raises InputError with the ids that only one side has, or if there is no pair."""
    for here, there, side in ((first, second, "first"), (second, first, "second")):
        alone = sorted(here.keys() - there.keys())
        if alone:
            named = ", ".join(alone[:5]) + (f" and {len(alone) - 5} more" if len(alone) > 5 else "")
            raise InputError(
                f"unpaired ids, only in the {side} policy's score: {named}", expected="the same tasks"
            )
    if not first:
        raise InputError("a comparison over no tasks", expected="at least one pair")
    cells = [(first[key], second[key]) for key in first]
    return PairCounts(
        both=cells.count((True, True)),
        gained=cells.count((False, True)),
        lost=cells.count((True, False)),
        neither=cells.count((False, False)),
    )


def mcnemar_exact(gained: int, lost: int) -> float:
    """Returns the two-sided p-value of McNemar's exact conditional test, or 1 without discordant pairs.
    Source: McNemar 1947; the binomial test of gained among the discordant pairs against 1/2."""
    tail = fsum(islice(heads(gained + lost), min(gained, lost) + 1))
    return round_digits(min(1.0, 2 * tail))


def paired_interval(pairs: PairCounts, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Returns the interval of `pairs.difference`, as (low, high).

    Source: method 10 of Newcombe 1998, Statistics in Medicine 17:2635-2650. The distances to the Wilson
    limits of both rates are combined in quadrature, minus the (continuity-corrected) correlation of the
    pairs.
    """
    total = pairs.total
    before, after = (
        (resolved / total, *wilson(resolved, total, confidence))
        for resolved in (pairs.both + pairs.lost, pairs.both + pairs.gained)
    )
    return newcombe(pairs.difference, before, after, _correlation(pairs))


def newcombe(difference: float, before: Rate, after: Rate, correlation: float) -> tuple[float, float]:
    """Returns the interval of a difference (after minus before) of two correlated rates, as (low, high).
    Source: method 10 of Newcombe 1998, with given limits of both rates."""
    (rate_before, low_before, high_before), (rate_after, low_after, high_after) = before, after

    def distance(down: float, up: float) -> float:
        return sqrt(max(0.0, down**2 - 2 * correlation * down * up + up**2))

    low = difference - distance(rate_after - low_after, high_before - rate_before)
    high = difference + distance(rate_before - low_before, high_after - rate_after)
    return round_digits(max(-1.0, low)), round_digits(min(1.0, high))


def _correlation(pairs: PairCounts) -> float:
    margins = (
        (pairs.both + pairs.lost)
        * (pairs.gained + pairs.neither)
        * (pairs.both + pairs.gained)
        * (pairs.lost + pairs.neither)
    )
    if not margins:
        return 0.0
    cross = pairs.both * pairs.neither - pairs.gained * pairs.lost
    corrected = max(cross - pairs.total / 2, 0) if cross > 0 else cross
    return corrected / sqrt(margins)


def detectable_difference(
    pairs: PairCounts, confidence: float = CONFIDENCE, power: float = POWER
) -> float | None:
    """Returns the smallest true difference detected with `power`, at the observed discordance, or None.

    Source: Connor 1987, Biometrics 43:207-211 (normal approximation, unconditional). It is solved for the
    difference, with the observed share of discordant pairs.
    """
    share = (pairs.gained + pairs.lost) / pairs.total
    alpha, beta = ndtri((1 + confidence) / 2), ndtri(power)

    def excess(difference: float) -> float:
        spread: float = alpha * sqrt(share) + beta * sqrt(max(0.0, share - difference**2))
        return difference * sqrt(pairs.total) - spread

    if not share or excess(share) < 0:
        return None
    from scipy.optimize import brentq

    return round_digits(brentq(excess, 0.0, share, xtol=1e-12))
