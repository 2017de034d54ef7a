"""How fast bytes must move, and whose bytes move next."""

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

SLOWEST = 32 << 10
"""Bytes a second. A client that sends or reads many bytes more slowly loses its connection."""
T = TypeVar("T")


class Turns:
    """Who moves many bytes takes turns with the others who do: one piece each time round the event loop.

    So a small request waits for one piece at each of its steps, however many bytes are on their way.
    """

    def __init__(self) -> None:
        self._one = asyncio.Lock()

    async def take(self) -> None:
        """Returns when it is this caller's turn to move its next piece."""
        async with self._one:
            await asyncio.sleep(0)


class Credit:
    """How long somebody may be waited for: some seconds, and more as long as bytes move at the least speed.

    What came fast is not saved up: whoever stops has at most these seconds.
    """

    def __init__(self, seconds: float, slowest: int) -> None:
        self._most, self._slowest = seconds, slowest
        self.left = seconds

    async def wait(self, moving: Awaitable[T]) -> T:
        """What is waited for. Raises TimeoutError when nothing is left."""
        began = time.monotonic()
        async with asyncio.timeout(self.left):
            moved = await moving
        self.left -= time.monotonic() - began
        return moved

    def moved(self, count: int, slowest: int = 0) -> None:
        """So many bytes have moved. slowest: the least speed from now on."""
        self._slowest = slowest or self._slowest
        self.left = min(self._most, max(0.0, self.left) + count / self._slowest)
