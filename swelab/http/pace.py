"""Enforces minimum transfer speeds, and lets concurrent transfers take turns."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

SLOWEST = 32 << 10
"""Minimum speed in bytes per second. The server closes the connection of a client that is slower."""
T = TypeVar("T")


class Turns:
    """Lets large transfers take turns: one transfer moves one piece in each round of the event loop.

    So a small request waits in each step for at most one piece of a large transfer.
    """

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def take(self) -> None:
        """Waits until this transfer may move its next piece."""
        async with self._one:
            await asyncio.sleep(0)


class Credit:
    """The time that a transfer may still take. It starts with `seconds`. Every transferred byte adds time.

    slowest: speed in bytes per second at which the credit stays constant. The credit never exceeds `seconds`.
    So even a fast transfer has at most `seconds` left when it stops.
    """

    def __init__(self, seconds: float, slowest: int) -> None:
        self._most, self._slowest = seconds, slowest
        self.left = seconds

    async def wait(self, moving: Awaitable[T]) -> T:
        """Returns the result of `moving`. Raises TimeoutError when the credit is used up."""
        began = time.monotonic()
        async with asyncio.timeout(self.left):
            moved = await moving
        self.left -= time.monotonic() - began
        return moved

    def add_bytes(self, count: int, slowest: int = 0) -> None:
        """Adds the credit for `count` bytes. slowest: the new minimum speed, or 0 to keep the old one."""
        self._slowest = slowest or self._slowest
        self.left = min(self._most, max(0.0, self.left) + count / self._slowest)
