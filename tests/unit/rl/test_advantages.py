"""Advantages compared with values worked out by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swelab.choices import ADVANTAGES
from swelab.rl.advantages import group_relative, is_constant, leave_one_out, length_weighted, step_wise


@pytest.mark.parametrize(
    ("solved", "good", "bad"),
    [(1, 2.4749, -0.3536), (2, 1.6202, -0.5401), (3, 1.2076, -0.7246), (4, 0.9354, -0.9354)],
)
def test_eight_rollouts_of_which_some_are_solved(solved, good, bad):
    found = group_relative([1.0] * solved + [0.0] * (8 - solved))
    assert found[0] == pytest.approx(good, abs=1e-4) and found[-1] == pytest.approx(bad, abs=1e-4)


def test_the_scale_of_rewards_is_left_where_it_is_not_divided():
    assert group_relative([1, 0, 0, 0], scaled=False) == [0.75, -0.25, -0.25, -0.25]
    assert group_relative([1, -1], scaled=False) == [1, -1]


def test_a_lost_rollout_moves_no_baseline():
    """Seven failures and one loss teach nothing.

    With the loss as a 0 the advantages were -0.354 and 2.475.
    """
    assert group_relative([-1.0] * 7 + [None]) == [0.0] * 8
    assert group_relative([1, 0, None], scaled=False) == [0.5, -0.5, 0.0]
    assert leave_one_out([1, 0, None]) == [1, -1, 0]
    assert length_weighted([1, 0, None], [10, 30, 1000]) == [0.75, -0.25, 0]


def test_each_against_the_mean_of_the_others():
    assert leave_one_out([1, 0, 0, 0]) == pytest.approx([1, -1 / 3, -1 / 3, -1 / 3])


@pytest.mark.parametrize("name", [name for name, each in ADVANTAGES.items() if not each.per_step])
def test_nothing_to_compare_teaches_nothing(name):
    for rewards in ([], [1.0], [None, None], [1.0, None], [1.0, 1.0, 1.0]):
        assert ADVANTAGES[name].load()(rewards, [5] * len(rewards)) == pytest.approx([0.0] * len(rewards))
        assert is_constant(rewards)


@given(st.lists(st.tuples(st.floats(-2, 2), st.integers(1, 500)), min_size=2, max_size=16))
def test_the_tokens_of_a_group_sum_to_nothing(group):
    rewards, lengths = [reward for reward, _ in group], [length for _, length in group]
    found = length_weighted(rewards, lengths)
    total = sum(value * length for value, length in zip(found, lengths, strict=True))
    assert total == pytest.approx(0, abs=1e-6 * sum(lengths))


def test_steps_are_compared_with_those_of_the_same_number():
    found = step_wise([1, 0], [[1.0, -1.0], [-1.0, -1.0]])
    assert found[0] == pytest.approx([1, 1], abs=1e-5) and found[1] == pytest.approx([-1, -1], abs=1e-5)
    found = step_wise([0, 0, 0], [[1.0], [0.0], [-1.0]])
    assert [steps[0] for steps in found] == pytest.approx([1.224744, 0, -1.224744], abs=1e-5)


def test_the_coefficient_counts():
    """Without the judge both rollouts are equal. A larger coefficient gives the outcome less weight."""
    assert step_wise([0, 0], [[1.0], [-1.0]], coefficient=0) == [[0], [0]]
    outcome_wins = step_wise([1, 0], [[-1.0], [1.0]], coefficient=0.25)
    judge_wins = step_wise([1, 0], [[-1.0], [1.0]], coefficient=1)
    assert outcome_wins[0][0] > 0.9 and judge_wins[0][0] < -0.9


def test_a_step_that_nobody_judged_is_an_average_one():
    with_gap = step_wise([1, 0, 0], [[None], [1.0], [-1.0]])
    with_average = step_wise([1, 0, 0], [[0.0], [1.0], [-1.0]])
    assert with_gap == with_average
    assert step_wise([1, 0], [[None], [None]])[0][0] == pytest.approx(1, abs=1e-5)


def test_a_step_that_only_one_rollout_reached_has_no_advantage():
    found = step_wise([1, 0], [[0.0, 0.0, 1.0], [0.0]])
    assert found[0][1:] == [0, 0] and found[0][0] > 0


def test_a_gap_shifts_no_later_step():
    """The third step was judged bad and the second was not judged. The blame stays on the third."""
    found = step_wise([0, 0], [[1.0, None, -1.0], [1.0, 1.0, 1.0]])
    assert found[0][1] == 0 and found[0][2] == pytest.approx(-1, abs=1e-5)


def test_a_lost_rollout_is_in_no_bucket():
    assert step_wise([None, 1, 0], [[1.0], [0.0], [0.0]])[0] == [0.0]
    assert step_wise([None, 1], [[1.0], [0.0]]) == [[0.0], [0.0]]
