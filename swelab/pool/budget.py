"""Shares out bytes of a machine among requests: one that does not fit waits its turn, for a while."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from swelab.sandbox.remote_protocol import NotReached, Refused

_PATIENCE = 45.0
_RESERVE = 8  # this part is kept for those who have nothing


class Grant:
    """Bytes that were granted; they are given back by `keep(0)`."""

    def __init__(self, budget: "Budget", key: str, size: int) -> None:
        self._budget, self._key, self.size = budget, key, size

    def keep(self, size: int) -> None:
        """Give back all but these bytes."""
        self._budget.change(self._key, size - self.size)
        self.size = size

    async def reach(self, size: int) -> None:
        """Have at least these bytes. Raises Refused (too many), NotReached (not free in time)."""
        if size > self.size:
            self._budget.check(size)
            await self._budget.take(self._key, size - self.size, 1)
            self.size = size


class Budget:
    """At most `most` bytes at once. A key gets no more than it leaves free: half, if there is no other key.

    A single request of a key may have all but an eighth of what is free. So whatever some have, there is
    room for a small request of another. Requests are served in the order in which they came; those that do
    not fit let others pass. For one event loop.
    """

    def __init__(self, name: str, most: int, patience: float = _PATIENCE) -> None:
        self.name, self.most, self._patience = name, most, patience
        self.used = 0
        self._by: Counter[str] = Counter()
        self._grants: Counter[str] = Counter()
        self._waiting: list[tuple[asyncio.Future[None], str, int, int]] = []

    @contextlib.asynccontextmanager
    async def hold(self, key: str, size: int) -> AsyncIterator[Grant]:
        """Takes the bytes while the block lasts. Raises Refused (too many), NotReached (not free in time)."""
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
        """Count bytes for a key once they are free; `own`: how many grants they are added to. See `hold`."""
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
        """Raises Refused for more bytes than one request can get."""
        if size > (most := self.most - self.most // _RESERVE):
            raise Refused(f"{self.name}: {size} bytes asked for; a request gets at most {most}")

    def _late(self, size: int) -> NotReached:
        """The error of a request that waited in vain; it may be sent again."""
        return NotReached(f"{self.name}: {size} bytes were not free in time; try again")

    def _fits(self, key: str, size: int, own: int) -> bool:
        left = self.most - self.used - size
        single = self._grants[key] == own
        return left >= self._by[key] + size or (single and left >= self.most // _RESERVE)

    def change(self, key: str, size: int) -> None:
        """Count bytes that are given, or given back if negative."""
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
