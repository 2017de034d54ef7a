"""Compares two policies on the same tasks, with one or several runs each, and many policies at once.

A task counts once, by the difference of the policies' shares of resolved attempts. So the test asks whether
one policy is better on tasks like these, not whether the policies differ on some task.
"""

from collections import Counter
from collections.abc import Sequence
from math import gcd, lcm, sqrt

import numpy as np
from scipy.special import ndtri

from swelab.scores.statistics.multi_run import Interval, mean_interval
from swelab.scores.statistics.one_rate import CONFIDENCE, round_digits
from swelab.scores.statistics.paired_rates import POWER, Rate, heads, newcombe

FINEST = 2520
"""If the common denominator of the shares exceeds FINEST, the shares are rounded to multiples of 1/FINEST.
FINEST is divisible by 1 to 10."""

Shares = Sequence[tuple[int, int]]


def share_differences(first: Shares, second: Shares) -> list[int]:
    """Returns the difference (second minus first) of resolved/attempted for each task, in a common unit."""
    whole = lcm(*{attempted for side in (first, second) for _, attempted in side})
    whole = min(whole, FINEST)
    differences = ((d / n - c / m) for (c, m), (d, n) in zip(first, second, strict=True))
    return [round(each * whole) for each in differences]


def sign_flip(differences: Sequence[int]) -> float:
    """Returns the two-sided p-value of the paired permutation test on the sum of differences.

    The p-value is 1 if all differences are 0. The test is exact: it counts every way to swap the two policies
    on each task, on the lattice of sums (Fisher 1935, The Design of Experiments, 21; the counting after
    Pagano and Tritchler 1983, JASA 78:435-440). With one run each, differences are -1, 0 or 1, and this is
    McNemar's exact test.
    """
    sizes = Counter(abs(each) for each in differences if each)
    if not sizes:
        return 1.0
    unit = gcd(*sizes)
    reach, distance = (
        sum(size // unit * count for size, count in sizes.items()),
        abs(sum(differences)) // unit,
    )
    chances = np.ones(1)
    for size, count in sorted(sizes.items()):
        size //= unit
        wider = np.zeros(len(chances) + size * count)
        for flipped, weight in enumerate(heads(count)):
            wider[size * flipped : size * flipped + len(chances)] += weight * chances
        chances = wider
    tail = float(chances[: (reach - distance) // 2 + 1].sum())
    return round_digits(min(1.0, 2 * tail))


def difference_interval(first: Shares, second: Shares, confidence: float = CONFIDENCE) -> Interval:
    """Returns the interval of the mean difference (second minus first) of the tasks' shares.

    The intervals of both means are combined in quadrature, minus the correlation of the shares. This is
    method 10 of Newcombe 1998, Statistics in Medicine 17:2635-2650, with intervals for several attempts in
    place of Wilson's. Zou and Donner 2008, Statistics in Medicine 27:1693-1702, generalize the method in this
    way.
    """
    rates, sides = list[Rate](), list[np.ndarray]()
    for side in (first, second):
        shares = [c / m for c, m in side]
        mean, (low, high) = mean_interval(shares, sum(m for _, m in side), confidence)
        rates.append((mean, low, high))
        sides.append(np.asarray(shares))
    before, after = rates
    return newcombe(after[0] - before[0], before, after, correlation(*sides))


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Returns Pearson's correlation, or 0 if one side does not vary."""
    across = float(np.std(first) * np.std(second))
    return (
        float(np.mean((first - first.mean()) * (second - second.mean()))) / across if across > 1e-12 else 0.0
    )


def found_difference(
    first: Shares, second: Shares, confidence: float = CONFIDENCE, power: float = POWER
) -> float | None:
    """Returns the smallest true difference detected with `power`, or None if the differences do not vary.

    Source: Miller 2024, arXiv:2411.00640, section 5 (normal approximation), with the variance of these
    differences.
    """
    differences = [d / n - c / m for (c, m), (d, n) in zip(first, second, strict=True)]
    spread = float(np.std(differences, ddof=1)) if len(differences) > 1 else 0.0
    z = ndtri((1 + confidence) / 2) + ndtri(power)
    return round_digits(min(1.0, z * spread / sqrt(len(differences)))) if spread > 0 else None


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns the adjusted p-values of several tests, in order.

    They limit the probability of at least one false positive. Source: Holm 1979, Scandinavian Journal of
    Statistics 6:65-70.
    """
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = round_digits(least)
    return adjusted
