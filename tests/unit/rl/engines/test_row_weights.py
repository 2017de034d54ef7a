"""Weights of verl's rows, compared with values worked out by hand."""

import pytest

from swelab.rl.engines.verl_advantages import optimizer_steps, row_factors

ROWS = [4, 2, 6, 0]
"""Numbers of trained tokens: two rows of rollout a, one of b, and one row that fills the batch."""
SEQUENCES = ["a", "a", "b", "pad"]


def test_a_mean_over_tokens_is_the_same_on_both_sides():
    assert row_factors(ROWS, ROWS, SEQUENCES, "token-mean") == [1.0, 1.0, 1.0, 0.0]


@pytest.mark.parametrize("mode", ["seq-mean-token-sum", "seq-mean-token-sum-norm"])
def test_a_sum_is_divided_by_the_rollouts_that_are_trained(mode):
    """verl divides by four rows, we divide by two rollouts."""
    assert row_factors(ROWS, ROWS, SEQUENCES, mode, horizon=10) == [2.0, 2.0, 2.0, 0.0]


def test_a_rollout_of_two_rows_weighs_as_one():
    """verl: each row counts a quarter.

    Ours: half a rollout, of which the first row has four of six tokens.
    """
    found = row_factors(ROWS, ROWS, SEQUENCES, "seq-mean-token-mean")
    assert found == pytest.approx([4 / 4 * 4 / 3, 4 / 4 * 2 / 3, 2.0, 0.0])


def test_a_token_that_verl_rejected_still_counts_in_the_mean():
    """verl's mean over the row then covers three tokens, ours six."""
    found = row_factors(ROWS, [4, 2, 3, 0], SEQUENCES, "seq-mean-token-mean")
    assert found[2] == pytest.approx(1.0) and found[0] == pytest.approx(4 / 3)


def test_nothing_trained_is_nothing_divided():
    assert row_factors([0, 0], [0, 0], ["a", "b"], "seq-mean-token-sum") == [0.0, 0.0]


def test_a_horizon_must_be_known():
    with pytest.raises(ValueError, match="horizon"):
        row_factors(ROWS, ROWS, SEQUENCES, "seq-mean-token-sum-norm")


@pytest.mark.parametrize(
    ("rows", "each", "wanted", "steps"), [(64, 64, 1, 1), (192, 64, 1, 1), (64, 32, 2, 2), (96, 32, 2, 3)]
)
def test_a_batch_has_the_recipe_s_steps_however_many_rows(rows, each, wanted, steps):
    assert optimizer_steps(rows, each, wanted) == steps
