"""Meters of parallel work, with a clock that the test sets."""

import pytest

from swelab.rl import idle_shares
from swelab.rl.idle_shares import Busy, StepClock


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(idle_shares.time, "monotonic", lambda: now[0])

    def pass_seconds(seconds):
        now[0] += seconds

    return pass_seconds


def test_a_meter_tells_when_anything_was_done_and_how_much(clock):
    meter = Busy()
    clock(5)
    with meter.one():
        clock(2)
        with meter.one():
            clock(3)
    clock(7)
    assert meter.read() == (5, 8)
    with pytest.raises(ValueError, match="fault"), meter.one():
        clock(1)
        raise ValueError("fault")
    clock(1)
    assert meter.read() == (6, 9)


def test_a_step_tells_who_was_idle(clock):
    places, engine = Busy(), Busy()
    with places.one():
        clock(50)  # before the step, so it is not counted
    step = StepClock(places, engine, workers=2)
    with places.one():
        clock(2)
        with engine.one(), places.one():
            clock(4)
    assert step.seconds() == 6
    clock(3)  # the learner trains
    # One more second went into publishing weights: 10 in all, and 20 for two slots, of which 10 were used.
    assert step.idle(trained=3, published=1) == {"idle/trainer": 0.7, "idle/engine": 0.6, "idle/places": 0.5}
