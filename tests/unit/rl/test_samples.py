"""Every sampled token is trained once: same id, same position, same mask."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swelab.models.token_turn import TokenTurn
from swelab.rl.samples import samples


def turn(prompt, sampled):
    return TokenTurn(prompt, sampled, [-0.5 - i for i in range(len(sampled))], "stop")


FIRST = turn([1, 2, 3], [10, 11])
SECOND = turn([1, 2, 3, 10, 11, 4, 5], [12])
CHANGED = turn([1, 2, 9], [13, 14])


def test_a_history_that_only_grows_is_one_sequence():
    (sample,) = samples([FIRST, SECOND])
    assert sample.ids == [1, 2, 3, 10, 11, 4, 5, 12]
    assert sample.mask == [0, 0, 0, 1, 1, 0, 0, 1]
    assert sample.logprobs == [0, 0, 0, -0.5, -1.5, 0, 0, -0.5]
    assert sample.steps == [-1, -1, -1, 0, 0, -1, -1, 1]
    assert sample.trained == 3


def test_a_changed_history_begins_a_sequence():
    first, second = samples([FIRST, SECOND, CHANGED])
    assert first.ids == [1, 2, 3, 10, 11, 4, 5, 12]
    assert second.ids == [1, 2, 9, 13, 14] and second.steps == [-1, -1, -1, 2, 2]


def test_a_retokenised_answer_is_not_taken_for_the_sampled_one():
    """The engine was given 99 for the sampled 10 and 11: the same text with other ids."""
    first, second = samples([FIRST, turn([1, 2, 3, 99, 4], [12])])
    assert first.ids == [1, 2, 3, 10, 11] and second.ids == [1, 2, 3, 99, 4, 12]
    assert second.mask == [0, 0, 0, 0, 0, 1]


def test_one_sequence_for_each_step():
    found = samples([FIRST, SECOND], per_step=True)
    assert [sample.ids for sample in found] == [[1, 2, 3, 10, 11], [1, 2, 3, 10, 11, 4, 5, 12]]
    assert [sample.trained for sample in found] == [2, 1]


def test_an_answer_without_tokens_makes_none():
    assert samples([turn([1, 2], [])]) == [] == samples([])
    (sample,) = samples([FIRST, turn([*FIRST.prompt, *FIRST.sampled, 4], []), SECOND])
    assert sample.trained == 3


def test_a_missing_log_probability_is_refused():
    with pytest.raises(ValueError, match="2 sampled ids with 1 log-probabilities"):
        TokenTurn([1], [2, 3], [-1.0], "stop")


ids = st.lists(st.integers(0, 5), max_size=6)


@given(st.lists(st.tuples(ids, ids, st.booleans()), max_size=8), st.booleans())
def test_each_sampled_token_is_trained_once_where_it_was_sampled(script, per_step):
    turns, held = [], []
    for observed, sampled, forgets in script:
        held = observed if forgets else held + observed
        turns.append(turn(list(held), sampled))
        held = held + sampled
    found = samples(turns, per_step)
    trained = [
        (step, sample.ids[:position], token, logprob)
        for sample in found
        for position, (step, token, logprob) in enumerate(
            zip(sample.steps, sample.ids, sample.logprobs, strict=True)
        )
        if step >= 0
    ]
    expected = [
        (step, [*each.prompt, *each.sampled[:i]], token, each.logprobs[i])
        for step, each in enumerate(turns)
        for i, token in enumerate(each.sampled)
    ]
    assert trained == expected
    assert all([bool(m) for m in sample.mask] == [step >= 0 for step in sample.steps] for sample in found)
