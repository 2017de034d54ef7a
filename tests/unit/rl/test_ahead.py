"""Groups of rollouts that may begin before they are requested."""

import threading

import pytest

from swelab.records import Fault
from swelab.rl.ahead import Ahead
from swelab.rl.prompts import Prompts
from tests.conftest import make_task
from tests.contract.attacks import PATIENCE, until


class Rollouts:
    """Makes rollouts that end once `free` is set. `begun` lists the prompt and sample of each."""

    def __init__(self):
        self.begun, self.free = [], threading.Event()
        self.free.set()

    def __call__(self, asked, kept):
        self.begun.append((asked.prompt, asked.sample))
        self.free.wait(PATIENCE)
        return asked.prompt, asked.sample


@pytest.fixture
def rollouts():
    return Rollouts()


def opened(folder, rollouts, **changes):
    prompts = Prompts([make_task()], seed=0)
    settings = {"samples": 2, "workers": 4} | changes
    return Ahead(folder, prompts, roll_out=rollouts, **settings)


def groups_begun(rollouts):
    return {prompt for prompt, _ in rollouts.begun}


def test_no_group_begins_before_it_is_allowed(tmp_path, rollouts):
    with opened(tmp_path, rollouts, workers=1) as ahead:
        ahead.allow(2)
        assert ahead.take(0) == [(0, 0), (0, 1)]
        assert ahead.take(1) == [(1, 0), (1, 1)]
        ahead._pool.submit(int).result(PATIENCE)  # its turn comes after everything that was allowed
        assert groups_begun(rollouts) == {0, 1}
        ahead.allow(3)
        assert ahead.take(2) == [(2, 0), (2, 1)]


def test_later_groups_run_while_an_earlier_one_is_slow(tmp_path, rollouts):
    slow = threading.Event()

    def one_is_slow(asked, kept):
        if (asked.prompt, asked.sample) == (0, 1):
            slow.wait(PATIENCE)
        return rollouts(asked, kept)

    with opened(tmp_path, one_is_slow) as ahead:
        ahead.allow(3)
        assert ahead.take(2) == [(2, 0), (2, 1)]
        assert (0, 1) not in rollouts.begun
        slow.set()
        assert ahead.take(0) == [(0, 0), (0, 1)]


def test_each_rollout_is_begun_once_however_often_it_is_allowed(tmp_path, rollouts):
    with opened(tmp_path, rollouts) as ahead:
        for limit in (2, 1, 2, 3):
            ahead.allow(limit)
        assert [ahead.take(number) for number in range(3)]
    assert sorted(rollouts.begun) == [(prompt, sample) for prompt in range(3) for sample in range(2)]


def test_a_run_that_goes_on_begins_where_it_was(tmp_path, rollouts):
    with opened(tmp_path, rollouts, first=6) as ahead:
        ahead.allow(7)
        assert ahead.take(6)
    assert groups_begun(rollouts) == {6}


def test_a_fault_is_raised_where_its_group_is_taken_and_ends_what_waits(tmp_path):
    begun, allowed = [], threading.Event()

    def roll_out(asked, kept):
        begun.append(asked.prompt)
        assert allowed.wait(PATIENCE)
        if asked.prompt == 0:
            raise Fault("no sandbox")
        if len(begun) == 3:
            until(ahead._waiting[49][-1].cancelled, PATIENCE)

    with pytest.raises(Fault, match="no sandbox"), opened(tmp_path, roll_out, workers=1) as ahead:
        ahead.allow(50)
        allowed.set()
        ahead.take(0)
    assert len(begun) <= 3


def test_a_journal_holds_the_prompts_of_a_step(tmp_path):
    with opened(tmp_path, lambda asked, kept: kept, per_file=3) as ahead:
        ahead.allow(7)
        made = [ahead.take(number) for number in range(7)]
        assert made[0][0] is made[2][1] and made[2][0] is not made[3][0]
        ahead.done_before(6)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"rollouts-{number:05d}.jsonl" for number in range(3)
    ]
