"""Divides the memory or disk space of a machine among requests.

A request that does not fit waits for a limited time.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from swelab.sandbox.remote_protocol import NotReached, Refused

_PATIENCE = 45.0
_RESERVE = 8  # one request must leave one eighth of all bytes free


class Grant:
    """A number of bytes that a request may use. `keep(0)` releases all of them."""

    def __init__(self, budget: "Budget", key: str, size: int) -> None:
        self._budget, self._key, self.size = budget, key, size

    def keep(self, size: int) -> None:
        """Releases all but `size` bytes."""
        self._budget.change(self._key, size - self.size)
        self.size = size

    async def reach(self, size: int) -> None:
        """Extends the grant to `size` bytes.

        Raises Refused if one request can never get `size` bytes, NotReached if they are not free in time.
        """
        if size > self.size:
            self._budget.check(size)
            await self._budget.take(self._key, size - self.size, 1)
            self.size = size


class Budget:
    """Grants at most `most` bytes in total to the requests of one event loop.

    Each request belongs to a key, such as a client. The bytes of a key must not exceed the bytes that are
    still free, so one key gets at most half of all bytes. There is one exception: the only request of a key
    may use more, if it leaves one eighth of all bytes free. So a small request of another key still fits.
    Waiting requests are served in the order of their arrival. A request that fits may overtake requests that
    do not fit. patience: seconds that a request waits.
    """

    def __init__(self, name: str, most: int, patience: float = _PATIENCE) -> None:
        self.name, self.most, self._patience = name, most, patience
        self.used = 0
        self._by: Counter[str] = Counter()
        self._grants: Counter[str] = Counter()
        self._waiting: list[tuple[asyncio.Future[None], str, int, int]] = []

    @contextlib.asynccontextmanager
    async def hold(self, key: str, size: int) -> AsyncIterator[Grant]:
        """Reserves `size` bytes while the block runs.

        Raises Refused if one request can never get `size` bytes, NotReached if they are not free in time.
        """
        self.check(size)
        await self.take(key, size, 0)
        self._grants[key] += 1
        grant = Grant(self, key, size)
        try:
            yield grant
        finally:
            self._grants[key] -= 1
            if not self._grants[key]:
                del self._grants[key]
            grant.keep(0)

    async def take(self, key: str, size: int, own: int) -> None:
        """Waits until `size` bytes are free and counts them for a key. Raises NotReached after a timeout.

        own: 0 for a new grant, 1 to extend a grant.
        """
        if self._fits(key, size, own):
            self.change(key, size)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = turn, key, size, own
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(self._patience):
                await asyncio.shield(turn)
        except BaseException as error:
            if turn.done():
                self.change(key, -size)
            else:
                self._waiting.remove(entry)
            raise self._late(size) if isinstance(error, TimeoutError) else error from None

    def check(self, size: int) -> None:
        """Raises Refused if `size` is more than one request can ever get."""
        if size > (most := self.most - self.most // _RESERVE):
            raise Refused(f"{self.name}: {size} bytes asked for; a request gets at most {most}")

    def _late(self, size: int) -> NotReached:
        """Returns the error for a request that waited too long. The client may try again."""
        return NotReached(f"{self.name}: {size} bytes were not free in time; try again")

    def _fits(self, key: str, size: int, own: int) -> bool:
        left = self.most - self.used - size
        single = self._grants[key] == own
        return left >= self._by[key] + size or (single and left >= self.most // _RESERVE)

    def change(self, key: str, size: int) -> None:
        """Adds `size` bytes to the count of a key. A negative `size` releases bytes."""
        self.used += size
        self._by[key] += size
        if self._by[key] <= 0:
            del self._by[key]
        if size < 0:
            self._serve()

    def _serve(self) -> None:
        for entry in list(self._waiting):
            turn, key, size, own = entry
            if self._fits(key, size, own):
                self._waiting.remove(entry)
                self.change(key, size)
                turn.set_result(None)
