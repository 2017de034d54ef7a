"""Statistics of several runs compared with enumeration, independent formulas, scipy, and simulation."""

import itertools
from math import comb, prod, sqrt

import numpy as np
import pytest
from scipy.stats import permutation_test

from swelab.records import InputError
from swelab.scores.statistics.multi_run import Attempts, detectable_differences, effective_wilson, runs_differ
from swelab.scores.statistics.one_rate import wilson
from swelab.scores.statistics.paired_rates import mcnemar_exact
from swelab.scores.statistics.permutation_test import (
    FINEST,
    difference_interval,
    found_difference,
    holm,
    share_differences,
    sign_flip,
)


def drawn(rng, chances, runs):
    return [(int(count), runs) for count in rng.binomial(runs, chances)]


def hard_and_easy(rng, tasks, mean=0.35):
    """Returns success rates of tasks, most of them near 0 or 1."""
    return rng.beta(mean * 0.7, (1 - mean) * 0.7, tasks)


@pytest.mark.parametrize(("resolved", "total"), [(0, 70), (1, 70), (30, 70), (70, 70), (123, 500)])
def test_one_run_gives_wilson(resolved, total):
    attempts = Attempts([(1, 1)] * resolved + [(0, 1)] * (total - resolved))
    assert attempts.interval() == wilson(resolved, total)
    assert attempts.pass_at(1)[1] == pytest.approx(wilson(resolved, total))
    assert attempts.within is None
    assert Attempts([*attempts.counts, (0, 0)]).interval() == wilson(resolved, total)  # a lost task


def test_runs_that_repeat_one_another_are_one_run_and_independent_ones_are_many():
    same = Attempts([(5, 5)] * 30 + [(0, 5)] * 70)
    assert same.interval() == pytest.approx(wilson(30, 100)) and same.within == 0
    alike = Attempts([(2, 5)] * 100)
    assert alike.interval() == pytest.approx(wilson(200, 500))
    assert Attempts([(0, 5)] * 100).interval() == wilson(0, 100)
    assert effective_wilson(1.0, 4, 0.0, 4) == wilson(1, 4)


def test_the_interval_is_wilsons_at_the_effective_number():
    counts = [(0, 4), (1, 4), (4, 4), (3, 4), (0, 4), (2, 4)]
    share, variance = 10 / 24, sum((c / 4 - 10 / 24) ** 2 for c, _ in counts) / 36
    number, z = share * (1 - share) / variance, 1.959963985
    middle = (share * number + z * z / 2) / (number + z * z)
    half = z / (number + z * z) * sqrt(share * (1 - share) * number + z * z / 4)
    assert Attempts(counts).interval() == pytest.approx((middle - half, middle + half))


@pytest.mark.parametrize("shape", ["hard and easy", "one chance", "certain"])
def test_intervals_cover_the_rate_over_tasks_and_runs(shape):
    rng, tasks, runs, hits = np.random.default_rng(1), 120, 4, 0
    for _ in range(400):
        chances = {
            "hard and easy": hard_and_easy(rng, tasks),
            "one chance": np.full(tasks, 0.35),
            "certain": (rng.random(tasks) < 0.35).astype(float),
        }[shape]
        low, high = Attempts(drawn(rng, chances, runs)).interval()
        hits += low <= 0.35 <= high
    assert 0.925 <= hits / 400 <= 0.98


def test_pass_at_k_is_the_mean_over_all_draws_of_k_attempts():
    for resolved, attempted in ((0, 5), (1, 5), (3, 5), (5, 5), (2, 4)):
        row = [True] * resolved + [False] * (attempted - resolved)
        for k in range(1, attempted + 1):
            draws = list(itertools.combinations(row, k))
            attempts = Attempts([(resolved, attempted)])
            assert attempts.pass_at(k)[0] == pytest.approx(sum(map(any, draws)) / len(draws))
            assert attempts.pass_at(k, every=True)[0] == pytest.approx(sum(map(all, draws)) / len(draws))
            rest = attempted - resolved
            stable = 1 - prod(1 - k / n for n in range(rest + 1, attempted + 1)) if rest >= k else 1
            assert attempts.pass_at(k)[0] == pytest.approx(stable)  # as the paper computes it


def test_pass_at_all_attempts_has_wilsons_interval_over_tasks():
    attempts = Attempts([(2, 3)] * 20 + [(0, 3)] * 30)
    assert attempts.pass_at(3) == (0.4, pytest.approx(wilson(20, 50)))
    # a task with two attempts gives no estimate for three
    assert Attempts([(1, 2), (1, 3)]).pass_at(3)[0] == 1
    with pytest.raises(InputError, match=r"pass@4.*expected at least 4 runs"):
        attempts.pass_at(4)
    with pytest.raises(InputError, match="no tasks"):
        Attempts([(0, 0)]).interval()


def test_pass_at_k_covers():
    rng, hits, tasks = np.random.default_rng(2), 0, 100
    chances = [hard_and_easy(rng, 40_000)]
    truth = float(np.mean(1 - (1 - chances[0]) ** 3))
    for _ in range(300):
        low, high = Attempts(drawn(rng, hard_and_easy(rng, tasks), 6)).pass_at(3)[1]
        hits += low <= truth <= high
    assert 0.92 <= hits / 300 <= 0.985


def test_the_variance_within_tasks_is_unbiased():
    for chance, runs in ((0.2, 3), (0.7, 4)):
        mean = sum(
            comb(runs, c) * chance**c * (1 - chance) ** (runs - c) * Attempts([(c, runs)]).within
            for c in range(runs + 1)
        )
        assert mean == pytest.approx(chance * (1 - chance))


def test_cochrans_q():
    table = [[1, 0]] * 12 + [[0, 1]] * 4 + [[1, 1]] * 9 + [[0, 0]] * 5
    from scipy.stats import chi2

    assert runs_differ(table) == pytest.approx(chi2.sf((12 - 4) ** 2 / 16, 1))  # two runs: McNemar's
    assert runs_differ([[1, 1, 1], [0, 0, 0]]) is None and runs_differ([[1], [0]]) is None
    rng = np.random.default_rng(3)
    found = [runs_differ(rng.random((80, 4)) < rng.random((80, 1))) for _ in range(300)]
    assert 0.02 <= np.mean(np.array(found) < 0.05) <= 0.08
    broken = rng.random((80, 4)) < rng.random((80, 1))
    broken[:, 2] = False
    assert runs_differ(broken) < 1e-6


def test_one_run_each_gives_mcnemar():
    for gained, lost in itertools.product((0, 1, 2, 7, 30, 200), repeat=2):
        differences = [1] * gained + [-1] * lost + [0] * 5
        assert sign_flip(differences) == pytest.approx(mcnemar_exact(gained, lost))


def test_sign_flips_are_counted_exactly():
    rng = np.random.default_rng(4)
    for _ in range(40):
        row = [int(value) for value in rng.integers(-6, 7, rng.integers(1, 11))]
        sums = [
            sum(s * d for s, d in zip(signs, row)) for signs in itertools.product((1, -1), repeat=len(row))
        ]
        share = np.mean([abs(each) >= abs(sum(row)) for each in sums])
        assert sign_flip(row) == pytest.approx(share), row


def test_sign_flips_as_scipy_permutes():
    first = [(0, 4), (1, 4), (2, 4), (0, 4), (3, 4), (1, 4), (4, 4), (0, 4), (2, 4)]
    second = [(1, 4), (3, 4), (2, 4), (2, 4), (4, 4), (0, 4), (4, 4), (1, 4), (4, 4)]
    sides = [[c / m for c, m in side] for side in (second, first)]
    found = permutation_test(
        sides, lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples", n_resamples=np.inf
    )
    assert sign_flip(share_differences(first, second)) == pytest.approx(found.pvalue)


def test_shares_of_unequal_numbers_of_attempts_have_a_common_step():
    assert share_differences([(1, 2), (0, 3)], [(2, 3), (3, 3)]) == [1, 6]
    assert share_differences([(0, 7), (1, 11)], [(7, 7), (5, 13)]) == [1001, 385 - 91]
    assert share_differences([(0, 19), (1, 11)], [(19, 19), (5, 13)]) == [
        FINEST,
        round((5 / 13 - 1 / 11) * FINEST),
    ]
    assert sign_flip(share_differences([(1, 5)] * 9, [(1, 1)] * 9)) == pytest.approx(2 / 2**9)


def test_tails_are_exact_far_out():
    assert sign_flip([10] * 400) == pytest.approx(2 * 0.5**400, rel=1e-9)
    assert sign_flip([]) == sign_flip([0, 0]) == 1


def test_the_test_keeps_its_level_and_the_interval_covers():
    rng, wrong, hits, rounds = np.random.default_rng(5), 0, 0, 400
    for _ in range(rounds):
        chances = hard_and_easy(rng, 100)
        first, second = (
            drawn(rng, chances, 3),
            drawn(rng, np.clip(chances + rng.normal(0, 0.1, 100), 0, 1), 5),
        )
        even = drawn(rng, chances, 5)
        wrong += sign_flip(share_differences(first, even)) < 0.05
        low, high = difference_interval(first, even)
        hits += low <= 0 <= high
        assert low <= sum(d / 5 - c / 3 for (c, _), (d, _) in zip(first, even)) / 100 <= high
        assert difference_interval(second, first) == pytest.approx(
            tuple(-limit for limit in reversed(difference_interval(first, second)))
        )
    assert 0.02 <= wrong / rounds <= 0.08 and 0.92 <= hits / rounds <= 0.98


def test_the_interval_of_a_difference_at_the_ends():
    assert difference_interval([(0, 2)] * 20, [(2, 2)] * 20)[1] == 1
    low, high = difference_interval([(0, 2)] * 20, [(0, 2)] * 20)
    assert low == pytest.approx(-high) and 0 < high < 0.2


@pytest.mark.parametrize("runs", [1, 4])
def test_the_planned_difference_is_found_four_times_in_five(runs):
    rng, rate, tasks, found = np.random.default_rng(6), 0.3, 250, 0
    least, most = detectable_differences(rate, tasks, runs, rate * (1 - rate))
    assert least == pytest.approx(most)  # all of the variance is sampling noise
    for _ in range(300):
        sides = [drawn(rng, np.full(tasks, chance), runs) for chance in (rate - least / 2, rate + least / 2)]
        found += sign_flip(share_differences(*sides)) < 0.05
    assert 0.7 <= found / 300 <= 0.87  # an exact test with few discordant pairs has a little less power


def test_planning_by_hand():
    z = 1.959963985 + 0.8416212336
    least, most = detectable_differences(0.3, 500, 5, 0.08)
    assert least == pytest.approx(z * sqrt(2 * 0.08 / 5 / 500))
    assert most == pytest.approx(z * sqrt((2 * (0.21 - 0.08) + 2 * 0.08 / 5) / 500))
    assert detectable_differences(0.3, 500, 1, None) == (None, pytest.approx(z * sqrt(2 * 0.21 / 500)))


def test_the_found_difference_shrinks_with_tasks():
    first, second = [(0, 2), (1, 2), (2, 2), (1, 2)] * 10, [(1, 2), (1, 2), (2, 2), (0, 2)] * 10
    few, many = found_difference(first, second), found_difference(first * 4, second * 4)
    assert many == pytest.approx(few / 2, rel=0.02)
    assert found_difference(first, first) is None and found_difference(first[:1], second[:1]) is None


def test_holm():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.6]) == [1, 1] and holm([]) == [] and holm([0.02]) == [0.02]


def test_the_interval_from_run_to_run_holds_the_tasks_fixed():
    sure = Attempts([(4, 4)] * 30 + [(0, 4)] * 30)
    assert sure.run_sd == 0 and sure.rerun_interval(4) == (0.5, 0.5)
    open_ = Attempts([(2, 4)] * 60)
    assert open_.run_sd == pytest.approx((1 / 3 / 60) ** 0.5)
    low, high = open_.rerun_interval(4)
    assert (low + high) / 2 == pytest.approx(0.5) and high - low == pytest.approx(
        1.96 * open_.run_sd, rel=1e-3
    )
    assert open_.rerun_interval(16)[1] < high
    assert Attempts([(1, 1), (0, 1)]).rerun_interval(1) == (0.5, 0.5), "one run says nothing of its luck"


def test_the_interval_from_run_to_run_covers_the_tasks_own_rate():
    draw = np.random.default_rng(3)
    shares = draw.beta(0.5, 0.5, 100)
    hits = 0
    for _ in range(400):
        low, high = Attempts([(int(n), 4) for n in draw.binomial(4, shares)]).rerun_interval(4)
        hits += low <= shares.mean() <= high
    assert 0.92 < hits / 400 < 0.98
