"""Statistics of several runs on the same tasks.

The statistics separate two parts of a rate's variance: the choice of tasks, and the luck of a run. A task's
attempts are counted as (resolved, attempted). Attempts at one task are correlated, so the independent units
are tasks, not attempts. With one run, all figures equal the figures of `statistics` for one run.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb, sqrt

import numpy as np
from scipy.special import chdtrc, ndtri

from swelab.records import InputError
from swelab.scores.statistics.one_rate import CONFIDENCE, round_digits, wilson
from swelab.scores.statistics.paired_rates import POWER

Interval = tuple[float, float]


@dataclass(frozen=True)
class Attempts:
    """(resolved, attempted) of each task. Tasks without attempts are ignored."""

    counts: Sequence[tuple[int, int]]

    @cached_property
    def _pairs(self) -> np.ndarray:
        pairs = np.array([pair for pair in self.counts if pair[1]], dtype=float).reshape(-1, 2)
        if not len(pairs):
            raise InputError("a rate over no tasks", expected="at least one attempt")
        return pairs

    @property
    def tasks(self) -> int:
        """Number of tasks with at least one attempt. Raises InputError if there are none."""
        return len(self._pairs)

    @property
    def resolved(self) -> int:
        """Number of resolved attempts over all tasks."""
        return int(self._pairs[:, 0].sum())

    @property
    def total(self) -> int:
        """Number of attempts over all tasks."""
        return int(self._pairs[:, 1].sum())

    @property
    def rate(self) -> float:
        """The mean of pass@1: resolved attempts divided by all attempts."""
        return self.resolved / self.total

    @property
    def shares(self) -> np.ndarray:
        """Share of resolved attempts for each task."""
        return np.asarray(self._pairs[:, 0] / self._pairs[:, 1])

    @property
    def within(self) -> float | None:
        """Mean over tasks of the variance of a task's attempts, or None if no task has two attempts.

        Source: the unbiased c (m - c) / (m (m - 1)) of each task; Miller 2024, arXiv:2411.00640, section 3.
        """
        resolved, attempted = self._pairs[self._pairs[:, 1] > 1].T
        if not len(resolved):
            return None
        return float(np.mean(resolved * (attempted - resolved) / (attempted * (attempted - 1))))

    @property
    def run_sd(self) -> float:
        """Standard deviation of one run's rate on these tasks. It comes only from the luck of attempts."""
        return sqrt((self.within or 0.0) / self.tasks)

    def rerun_interval(self, runs: int, confidence: float = CONFIDENCE) -> Interval:
        """Returns the interval of the mean rate of `runs` runs on exactly these tasks.

        The interval shows how much further runs may change the rate. It does not cover other tasks. It is
        normal with the deviation `luck`: with fixed tasks, attempts are independent (Miller 2024,
        arXiv:2411.00640, section 3). If no task has different attempts, the interval is a point.
        """
        half = float(ndtri((1 + confidence) / 2)) * self.run_sd / sqrt(runs)
        return round_digits(max(0.0, self.rate - half)), round_digits(min(1.0, self.rate + half))

    def interval(self, confidence: float = CONFIDENCE) -> Interval:
        """Returns the interval of `rate` over tasks and runs. A task is a cluster of attempts.

        The variance is linearized for a ratio over clusters (Cochran 1977, Sampling Techniques, 6.3). See
        `effective_wilson`.
        """
        resolved, attempted = self._pairs.T
        variance = float(np.sum((resolved - self.rate * attempted) ** 2)) / self.total**2
        return effective_wilson(self.resolved, self.total, variance, self.tasks, confidence)

    def pass_at(self, k: int, every: bool = False) -> tuple[float, Interval]:
        """Returns pass@k and its interval: at least one of k attempts resolves a task.

        With `every`, returns pass^k: all k attempts resolve a task. Estimates are unbiased: 1 - C(m - c, k) /
        C(m, k), Chen et al. 2021, arXiv:2107.03374, equation 1; for pass^k C(c, k) / C(m, k), Yao et al.
        2024, arXiv:2406.12045. Tasks with fewer than k attempts are excluded. Raises InputError if no task is
        left.
        """
        values = [_pass(int(c), int(m), k, every) for c, m in self._pairs if m >= k]
        if not values:
            raise InputError(f"pass@{k} of tasks with fewer attempts", expected=f"at least {k} runs")
        return mean_interval(values, self.total)


def _pass(resolved: int, attempted: int, k: int, every: bool) -> float:
    if every:
        return comb(resolved, k) / comb(attempted, k)
    return 1 - comb(attempted - resolved, k) / comb(attempted, k)


def mean_interval(
    values: Sequence[float], most: int, confidence: float = CONFIDENCE
) -> tuple[float, Interval]:
    """Returns the mean of one value per task, each in 0..1, and its interval.
    most: number of attempts from which the values are computed."""
    share, tasks = float(np.mean(values)), len(values)
    variance = float(np.var(values)) / tasks
    return round_digits(share), effective_wilson(share * most, most, variance, tasks, confidence)


def effective_wilson(
    resolved: float, total: int, variance: float, tasks: int, confidence: float = CONFIDENCE
) -> Interval:
    """Returns Wilson's interval of resolved/total, for the number of independent attempts with this variance.

    That number is p (1 - p) / variance. It is at least the number of tasks and at most the number of
    attempts. If none or all are resolved, it is the number of tasks. With one attempt per task, the result is
    Wilson's own interval. Source: the effective sample size of Korn and Graubard 1998, Survey Methodology
    24:193-201, in Wilson's interval, as compared by Franco et al. 2019, Journal of Survey Statistics and
    Methodology 7:334-364.
    """
    share = resolved / total
    if total == tasks and float(resolved).is_integer():
        return wilson(int(resolved), total, confidence)
    spread = share * (1 - share)
    if spread <= 1e-12:
        number = float(tasks)
    else:
        number = float(total) if variance <= 0 else min(max(spread / variance, tasks), total)
    z = ndtri((1 + confidence) / 2)
    middle = (share + z * z / (2 * number)) / (1 + z * z / number)
    half = z * sqrt(spread / number + z * z / (4 * number**2)) / (1 + z * z / number)
    low, high = (0.0 if share <= 0 else middle - half), (1.0 if share >= 1 else middle + half)
    return round_digits(max(0.0, low)), round_digits(min(1.0, high))


def runs_differ(verdicts: Sequence[Sequence[bool]]) -> float | None:
    """Returns the p-value of Cochran's Q test.

    The test shows whether runs differ by more than the luck of attempts.

    verdicts: a row for each task, with its verdict in each run. Returns None if each task was resolved in all
    runs or in none. Source: Cochran 1950, Biometrika 37:256-266; chi-squared with (runs - 1) degrees of
    freedom.
    """
    table = np.asarray(verdicts, dtype=float)
    runs = table.shape[1] if table.ndim == 2 else 0
    columns, rows = table.sum(axis=0), table.sum(axis=1)
    below = runs * rows.sum() - (rows**2).sum()
    if runs < 2 or below <= 0:
        return None
    statistic = (runs - 1) * (runs * (columns**2).sum() - columns.sum() ** 2) / below
    return round_digits(float(chdtrc(runs - 1, statistic)))


def detectable_differences(
    rate: float, tasks: int, runs: int, within: float | None, confidence: float = CONFIDENCE
) -> tuple[float | None, float]:
    """Returns the smallest true differences from a rate that `tasks` x `runs` attempts detect with POWER.

    The first difference assumes that the same tasks are hard for both policies, so that only the luck of
    attempts remains. It is None if `within` is unknown. The second difference assumes that the policies'
    results are independent. Source: Miller 2024, arXiv:2411.00640, section 5: (z_a + z_b)^2 (w^2 + 2 s^2 / K)
    / n.
    """
    z = ndtri((1 + confidence) / 2) + ndtri(POWER)
    total = rate * (1 - rate)
    luck = min(total, within or 0.0)
    apart = 2 * (total - luck) + 2 * luck / runs
    least = None if within is None else round_digits(min(1.0, z * sqrt(2 * luck / runs / tasks)))
    return least, round_digits(min(1.0, z * sqrt(apart / tasks)))
