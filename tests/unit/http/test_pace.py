"""Large transfers do not delay small ones, and a stalled client is not waited for."""

import asyncio
import time

import pytest

from swelab.http.pace import Credit, Turns
from tests.contract.attacks import PATIENCE
from tests.loop_turns import one_turn


def test_of_all_who_move_bytes_one_moves_a_piece_each_time_round():
    async def run():
        turns, moved, rounds = Turns(), [], []

        async def mover(name):
            for _ in range(20):
                await turns.take()
                moved.append(name)

        movers = [asyncio.ensure_future(mover(name)) for name in range(24)]
        while not all(each.done() for each in movers):
            before = len(moved)
            await one_turn()
            rounds.append(len(moved) - before)
        return moved, rounds

    moved, rounds = asyncio.run(run())
    assert max(rounds) == 1 and len(moved) == 24 * 20
    assert sorted(moved[:24]) == list(range(24)), "each has a turn before one has a second"


def test_who_is_cancelled_waits_no_more():
    async def run():
        turns = Turns()
        waiting = [asyncio.ensure_future(turns.take()) for _ in range(3)]
        await one_turn()
        waiting[1].cancel()
        await asyncio.wait(waiting, timeout=PATIENCE)
        return [each.cancelled() or each.done() for each in waiting]

    assert asyncio.run(run()) == [True, True, True]


@pytest.mark.full
def test_who_stops_is_waited_for_no_longer_however_much_came_before():
    async def run():
        credit, began = Credit(0.2, 1000), time.monotonic()
        for _ in range(10):
            await credit.wait(asyncio.sleep(0))
            credit.add_bytes(1 << 20)
        for _ in range(4):  # at the minimum speed
            await credit.wait(asyncio.sleep(0.1))
            credit.add_bytes(400)
        with pytest.raises(TimeoutError):
            for _ in range(100):
                await credit.wait(asyncio.sleep(0.02))
                credit.add_bytes(1)
        return time.monotonic() - began

    assert asyncio.run(run()) < 1.9


def test_a_new_least_speed_holds_from_then_on():
    credit = Credit(30.0, 1000)
    credit.left = 0.0
    credit.add_bytes(1000, 500)
    assert credit.left == 2.0
    credit.add_bytes(1000)
    assert credit.left == 4.0
