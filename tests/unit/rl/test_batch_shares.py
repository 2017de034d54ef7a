"""A batch is divided among ranks: nothing lost, nothing twice, about equal numbers of tokens."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from swelab.rl.batch_shares import FILLER, TrainingSample, passes, shares
from swelab.rl.samples import Sample


def sample(tokens, name="", trained=1):
    mask = [0] * (tokens - trained) + [1] * trained
    return TrainingSample(
        Sample([7] * tokens, mask, [-1.0] * tokens, [0] * tokens), [1.0] * tokens, mask, name
    )


@given(
    some.lists(some.integers(2, 300), min_size=1, max_size=30),
    some.integers(1, 5),
    some.integers(1, 3),
    some.integers(1, 600),
)
def test_each_sample_is_trained_once_and_ranks_make_as_many_passes(sizes, ranks, minibatches, bound):
    batch = [sample(size, str(number)) for number, size in enumerate(sizes)]
    found = shares(batch, minibatches, bound, ranks)
    names = [each.name for share in found for step in share for rows in step for each in rows]
    assert sorted(name for name in names if name) == sorted(each.name for each in batch)
    assert len(found) == ranks
    assert len({tuple(len(step) for step in share) for share in found}) == 1
    for share in found:
        assert len(share) == min(minibatches, len(batch))
        for rows in (rows for step in share for rows in step):
            assert rows and (len(rows) == 1 or len(rows) * max(len(r.sample.ids) for r in rows) <= bound)


def test_long_and_short_ones_are_balanced():
    first, second = passes([1000, 900, 500, 500, 500, 400, 300, 300], 1000, 2)
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        sizes = [1000, 900, 500, 500, 500, 400, 300, 300]
        padded = [len(rows) * max(sizes[row] for row in rows) for rows in (one, other)]
        assert max(padded) <= 1000 and min(padded) >= 500


def test_what_trains_nothing_is_left_out_and_a_rank_without_samples_runs_on_a_filler():
    assert shares([sample(4, trained=0)], 1, 100, 3) == [[], [], []]
    found = shares([sample(4, "a")], 2, 100, 3)
    assert [[[each.name for each in rows] for rows in share[0]] for share in found] == [
        [["a"]],
        [[""]],
        [[""]],
    ]
    assert found[1] == [[[FILLER]]] and not FILLER.sample.trained and not any(FILLER.weights)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_minibatches_hold_the_samples_in_turn(ranks):
    batch = [sample(10, str(number)) for number in range(6)]
    for step, expected in zip(zip(*shares(batch, 2, 100, ranks), strict=True), ("024", "135"), strict=True):
        names = [each.name for passes_ in step for rows in passes_ for each in rows]
        assert sorted(filter(None, names)) == list(expected)
