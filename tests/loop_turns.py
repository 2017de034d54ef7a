"""What runs in an event loop gets on by turns, which a test can count; seconds it cannot."""

import asyncio


async def one_turn():
    """What is ready in the loop goes on."""
    await asyncio.sleep(0)
