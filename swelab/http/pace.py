"""Lowest transfer speeds, and turns for concurrent transfers."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

SLOWEST = 32 << 10
"""Bytes a second. The server closes the connection of a client that transfers more slowly."""
T = TypeVar("T")


class Turns:
    """Large transfers take turns: one of them moves one piece in each round of the event loop.

    So each step of a small request waits for at most one piece, however many large transfers run.
    """

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def take(self) -> None:
        """Wait until this transfer may move its next piece."""
        async with self._one:
            await asyncio.sleep(0)


class Credit:
    """The time that a transfer may still take. It starts with `seconds`; every transferred byte adds to it.

    slowest: bytes a second that keep the credit constant. The credit never exceeds `seconds`. So a transfer
    that stops has at most these seconds left, however fast it was before.
    """

    def __init__(self, seconds: float, slowest: int) -> None:
        self._most, self._slowest = seconds, slowest
        self.left = seconds

    async def wait(self, moving: Awaitable[T]) -> T:
        """The result of `moving`. Raises TimeoutError when the credit runs out."""
        began = time.monotonic()
        async with asyncio.timeout(self.left):
            moved = await moving
        self.left -= time.monotonic() - began
        return moved

    def moved(self, count: int, slowest: int = 0) -> None:
        """Add the credit for `count` bytes. slowest: the lowest speed from now on; 0 leaves it unchanged."""
        self._slowest = slowest or self._slowest
        self.left = min(self._most, max(0.0, self.left) + count / self._slowest)
