"""The weights of tokens in a batch's loss, compared with values worked out by hand."""

import pytest

from swelab.rl.token_weights import MODES, token_weights

# Rollout a is one sample of 2 trained tokens, b is split into samples of 3 and 1.
TRAINED, ROLLOUTS = [2, 3, 1], ["a", "b", "b"]
LOSSES = [[1.0, 3.0], [2.0, 2.0, 2.0], [6.0]]


def loss(mode, trained=TRAINED, sequences=ROLLOUTS, losses=LOSSES, horizon=10):
    weights = token_weights(trained, sequences, mode, horizon)
    return sum(weight * sum(each) for weight, each in zip(weights, losses, strict=True))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token-mean", 16 / 6),
        ("seq-mean-token-sum", (4 + 12) / 2),
        ("seq-mean-token-sum-norm", (4 + 12) / 2 / 10),
        ("seq-mean-token-mean", (2 + 3) / 2),
    ],
)
def test_each_mode(mode, expected):
    assert loss(mode) == pytest.approx(expected)


@pytest.mark.parametrize("mode", MODES)
def test_a_split_rollout_counts_once(mode):
    whole = loss(mode, [2, 4], ["a", "b"], [[1.0, 3.0], [2.0, 2.0, 2.0, 6.0]])
    assert loss(mode) == pytest.approx(whole)


def test_steps_count_each_where_the_recipe_says_so():
    assert loss("seq-mean-token-mean", sequences=[0, 1, 2]) == pytest.approx((2 + 2 + 6) / 3)


@pytest.mark.parametrize("mode", MODES)
def test_what_is_not_trained_does_not_count(mode):
    without = token_weights([2, 4], ["a", "b"], mode, 10)
    assert token_weights([2, 0, 4, 0], ["a", "a", "b", "c"], mode, 10) == [without[0], 0, without[1], 0]
    assert token_weights([], [], mode, 10) == [] and token_weights([0], ["a"], mode, 10) == [0]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="aggregation 'mean': expected token-mean, "):
        token_weights([1], ["a"], "mean")
    with pytest.raises(ValueError, match="needs a horizon"):
        token_weights([1], ["a"], "seq-mean-token-sum-norm")
