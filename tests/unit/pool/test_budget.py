"""Large transfers do not delay small ones."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from swelab.http.pace import Turns
from swelab.pool.answers import TextAnswer
from swelab.pool.budget import Budget
from swelab.pool.request_schemas import TREE_BYTES, tar_bytes
from swelab.sandbox.protocol import Limits
from swelab.sandbox.remote_protocol import NotReached, Refused
from tests.contract.attacks import PATIENCE
from tests.loop_turns import one_turn


async def taken(stack, budget, key, size):
    """Returns the number of requests of this size that a key gets at once."""
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
