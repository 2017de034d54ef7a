"""All rollouts of a prompt are complete before one of them becomes a row."""

import asyncio

from swelab.rl.engines.verl_workplace import Gathering
from tests.loop_turns import one_turn


def test_a_group_is_whole_when_all_are_over_and_has_those_that_were_made():
    async def gathered():
        group = Gathering(3)
        waiting = asyncio.create_task(group.whole())
        group.close(0, "first")
        group.close(2, None)
        await one_turn()
        early = waiting.done()
        group.close(1, "second")
        return early, await waiting

    assert asyncio.run(gathered()) == (False, {0: "first", 1: "second"})
