"""The parts of a long history that a policy sees."""

from hypothesis import given
from hypothesis import strategies as st

from swelab.rl.managed_model import TurnWindow, placeholder, select_turns


def line(omitted):
    return 20 + len(str(omitted))


def select(turns, fixed, budget, tokens=lambda omitted: 0, **options):
    return select_turns(turns, fixed, budget, tokens, **options)


def test_a_short_history_is_shown_whole():
    assert select([10, 20, 30], 5, 65) == TurnWindow(3, 3, 65)
    assert select([], 5, 5) == TurnWindow(0, 0, 5)


def test_the_published_numbers():
    """16384 - 4096 tokens for the prompt, of which 788 are fixed: a head of at most 3450, a tail of 8050."""
    shown = select([230] * 60, 788, 16384 - 4096)
    assert (shown.head * 230, (60 - shown.tail) * 230) == (3450, 8050)
    assert shown.omitted == 10 and shown.size == 788 + 11500
    assert placeholder(10).startswith("[... 10 turn(s) of interaction history omitted")


def test_the_newest_turn_is_never_hidden():
    """The newest turn needs more than the tail's 70 %, so the head shrinks."""
    assert select([10, 10, 10, 80], 0, 100) == TurnWindow(2, 3, 100)
    assert select([10, 10, 10, 100], 0, 100) == TurnWindow(0, 3, 100)


def test_what_the_head_cannot_use_the_tail_may():
    assert select([50, 20, 20, 20, 20, 20], 0, 100) == TurnWindow(0, 1, 100)


def test_what_the_tail_cannot_use_the_head_may():
    assert select([10, 10, 10, 10, 10, 60, 30], 0, 80) == TurnWindow(5, 6, 80)


def test_a_turn_that_does_not_fit_is_said():
    assert select([10, 101], 0, 100) is None
    assert select([10], 95, 100) is None
    assert select([], 101, 100) is None
    assert select([10, 90], 0, 95, line) is None, "the line for the omitted turn does not fit either"


@given(st.lists(st.integers(0, 400), max_size=40), st.integers(0, 300), st.integers(1, 3000), st.floats(0, 1))
def test_what_is_shown_fits_and_is_what_could_be(turns, fixed, budget, share):
    shown = select(turns, fixed, budget, line, head_share=share)
    if shown is None:
        assert not turns or fixed + turns[-1] + line(len(turns)) > budget
        return
    kept = turns[: shown.head] + turns[shown.tail :]
    size = fixed + sum(kept) + (line(shown.omitted) if shown.omitted else 0)
    assert shown.size == size <= budget
    assert not turns or shown.tail < len(turns) or not shown.omitted
    hidden = turns[shown.head : shown.tail]
    if hidden:
        room = budget - fixed - sum(kept) - line(len(turns))
        assert hidden[0] > room, "one more turn would not have fitted"
