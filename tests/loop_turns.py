"""Counts turns of an event loop, because tests must not depend on seconds."""

import asyncio


async def one_turn():
    """Lets everything that is ready in the loop run once."""
    await asyncio.sleep(0)
