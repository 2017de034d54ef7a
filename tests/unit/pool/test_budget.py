"""Many bytes on their way do not hold up what is small."""

import asyncio
import json
import time
from contextlib import AsyncExitStack
from types import SimpleNamespace

import pytest

from swelab.pool import request_bodies
from swelab.pool.budget import SLOWEST, Budget, Credit, Turns
from swelab.pool.front_door import TextAnswer
from swelab.pool.request_bodies import WHOLE_SECONDS, least_speed
from swelab.pool.request_schemas import TREE_BYTES, tar_bytes
from swelab.sandbox.protocol import Limits
from swelab.sandbox.remote_protocol import NotReached, Refused
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


async def taken(stack, budget, key, size):
    """How many requests of this size a key gets at once."""
    for count in range(1000):
        try:
            await stack.enter_async_context(budget.hold(key, size))
        except NotReached:
            return count
    return 1000


def test_whatever_some_have_a_small_request_of_another_has_room():
    async def run():
        budget = Budget("memory", 1024, patience=0.01)
        async with AsyncExitStack() as stack:
            single = await stack.enter_async_context(budget.hold("single", 600))
            await single.reach(896)
            with pytest.raises(Refused, match="a request gets at most 896"):
                await single.reach(897)
            crowd = [await taken(stack, budget, f"rude-{number}", 16) for number in range(20)]
            assert await taken(stack, budget, "neighbour", 1) >= 1
        return crowd, budget.used

    crowd, used = asyncio.run(run())
    assert 0 < sum(crowd) <= 7 and crowd == sorted(crowd, reverse=True) and not used


def test_a_key_leaves_as_much_free_as_it_has():
    async def run():
        budget = Budget("memory", 1024, patience=0.01)
        async with AsyncExitStack() as stack:
            return [await taken(stack, budget, key, 8) for key in "abcd"]

    assert asyncio.run(run()) == [64, 32, 16, 8]


def test_who_grows_waits_for_what_others_give_back():
    async def run():
        budget = Budget("memory", 1024, patience=PATIENCE)
        async with budget.hold("a", 100) as grant, budget.hold("b", 500) as other:
            growing = asyncio.ensure_future(grant.reach(700))
            await one_turn()
            assert not growing.done() and grant.size == 100
            other.keep(50)
            await growing
            return grant.size, budget.used

    assert asyncio.run(run()) == (700, 750)


@pytest.mark.full
def test_who_stops_is_waited_for_no_longer_however_much_came_before():
    async def run():
        credit, began = Credit(0.2, 1000), time.monotonic()
        for _ in range(10):
            await credit.wait(asyncio.sleep(0))
            credit.moved(1 << 20)
        for _ in range(4):  # as fast as it has to be
            await credit.wait(asyncio.sleep(0.1))
            credit.moved(400)
        with pytest.raises(TimeoutError):
            for _ in range(100):
                await credit.wait(asyncio.sleep(0.02))
                credit.moved(1)
        return time.monotonic() - began

    assert asyncio.run(run()) < 1.9


def test_the_least_speed_of_a_body_grows_with_what_it_holds():
    credit = Credit(30.0, 1000)
    credit.left = 0.0
    credit.moved(1000, 500)
    assert credit.left == 2.0
    credit.moved(1000)
    assert credit.left == 4.0
    assert least_speed(0) == least_speed(1 << 20) == SLOWEST
    assert least_speed(7 << 30) == (7 << 30) // WHOLE_SECONDS > 7 << 20


@pytest.mark.parametrize(("length", "speeds"), [("2000", [20, 20, 20]), (None, [1, 10, 20])])
def test_a_body_must_keep_up_the_speed_of_its_length_or_of_what_has_come(monkeypatch, length, speeds):
    class Noted(Credit):
        def __init__(self, seconds, slowest):
            super().__init__(seconds, slowest)
            said.append(slowest)

        def moved(self, count, slowest=0):
            said.append(slowest)

    async def stream():
        yield bytes(1000)
        yield bytes(1000)

    async def come():
        headers = {"content-length": length} if length else {"transfer-encoding": "chunked"}
        scope = {"door": SimpleNamespace(turns=Turns())}
        request = SimpleNamespace(headers=headers, scope=scope, stream=stream)
        return [len(piece) async for piece in request_bodies.pieces(request, 5000)]

    said = []
    monkeypatch.setattr(request_bodies, "Credit", Noted)
    monkeypatch.setattr(request_bodies, "SLOWEST", 1)
    monkeypatch.setattr(request_bodies, "WHOLE_SECONDS", 100)
    assert asyncio.run(come()) == [1000, 1000] and said == speeds


def test_a_tar_is_no_larger_than_its_sandbox_s_disk_and_the_heads_of_its_files():
    assert tar_bytes(Limits(disk_bytes=1 << 30)) == (1 << 30) + (64 << 20)
    assert tar_bytes(Limits(disk_bytes=1 << 40)) == TREE_BYTES


@pytest.mark.parametrize(
    "text", [b"", b"plain\n", "é€𝄞".encode() * 50_000, b"\x00\xff\xc3" * 60_000, b"x" * 65535 + "é".encode()]
)
def test_much_text_is_written_as_json_writes_it(text):
    class Counted(Turns):
        count = 0

        async def take(self):
            self.count += 1
            await super().take()

    turns, answer = Counted(), TextAnswer("output", text, {"returncode": 3})
    asyncio.run(answer.write(turns))
    told = {"ok": True, "returncode": 3, "output": text.decode("utf-8", "surrogateescape")}
    assert answer.body == json.dumps(told).encode() and int(answer.headers["content-length"]) == len(
        answer.body
    )
    assert turns.count == max(0, -(-len(text) // 65536) - 1)
