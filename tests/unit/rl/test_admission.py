"""When groups may start."""

import threading

import pytest

from swelab.rl.admission import Admission


def started(admission):
    """How many of many groups start before the next would wait."""
    count, groups = 0, admission.paced(iter(range(1000)))
    while admission.room:
        next(groups)
        count += 1
    return count


def test_in_step_with_the_weights():
    admission = Admission(per_step=8)
    assert started(admission) == 8
    admission.published(1)
    assert started(admission) == 8 and admission.room == 0


def test_ahead_of_the_weights():
    admission = Admission(per_step=8, ahead=2)
    assert started(admission) == 24
    admission.published(1)
    assert started(admission) == 8


def test_a_group_that_is_not_trained_makes_room_for_another():
    admission = Admission(per_step=4)
    started(admission)
    admission.replace(3)
    assert started(admission) == 3


def test_a_run_that_goes_on():
    assert Admission(per_step=4, ahead=1, version=10).room == 8
    assert Admission(per_step=4, ahead=1, version=10, admitted=46).room == 2


def test_what_waits_is_woken_and_ended():
    admission = Admission(per_step=1)
    seen, second = [], threading.Event()

    def work():
        for group in admission.paced("abc"):
            seen.append(group)
            if group == "b":
                second.set()

    thread = threading.Thread(target=work)
    thread.start()
    admission.published(1)
    assert second.wait(30)
    admission.close()
    thread.join(30)
    assert not thread.is_alive() and seen == ["a", "b"]


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="0 groups a step"):
        Admission(0)
