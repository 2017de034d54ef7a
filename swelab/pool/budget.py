"""Bytes of a machine that many requests draw on: what does not fit waits its turn, for a while."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator

from swelab.sandbox.remote_protocol import NotReached, Refused

_PATIENCE = 45.0


class Grant:
    """Bytes that were granted; they are given back by `keep(0)`."""

    def __init__(self, budget: "Budget", key: str, size: int) -> None:
        self._budget, self._key, self.size = budget, key, size

    def keep(self, size: int) -> None:
        """Give back all but these bytes."""
        self._budget.change(self._key, size - self.size)
        self.size = size

    def grow(self, more: int) -> None:
        """Take more at once. Raises NotReached (it is not there now), Refused (it never is)."""
        self._budget.check(self.size + more)
        if not self._budget.fits(self._key, more):
            raise self._budget.late(self.size + more)
        self.keep(self.size + more)


class Budget:
    """At most `most` bytes at once. All that one key has is at most half of them, save a single request.

    Those who wait are served in their order; a key that has its half lets others pass. For one event loop.
    """

    def __init__(self, name: str, most: int, patience: float = _PATIENCE) -> None:
        self.name, self.most, self._patience = name, most, patience
        self.used = 0
        self._by: Counter[str] = Counter()
        self._waiting: list[tuple[asyncio.Future[None], str, int]] = []

    @contextlib.asynccontextmanager
    async def hold(self, key: str, size: int) -> AsyncIterator[Grant]:
        """The bytes, as long as the block lasts. Raises Refused (more than all), NotReached (not in time)."""
        self.check(size)
        if self._waiting or not self.fits(key, size):
            await self._turn(key, size)
        else:
            self.change(key, size)
        grant = Grant(self, key, size)
        try:
            yield grant
        finally:
            grant.keep(0)

    async def _turn(self, key: str, size: int) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = turn, key, size
        self._waiting.append(entry)
        self._serve()
        try:
            async with asyncio.timeout(self._patience):
                await asyncio.shield(turn)
        except BaseException as error:
            if turn.done():
                self.change(key, -size)
            else:
                self._waiting.remove(entry)
            raise self.late(size) if isinstance(error, TimeoutError) else error from None

    def check(self, size: int) -> None:
        """Raises Refused where so much is never given."""
        if size > self.most:
            raise Refused(f"{self.name}: {size} bytes asked for, and there are only {self.most}")

    def late(self, size: int) -> NotReached:
        """What is told to who waited in vain; the request may be sent again."""
        return NotReached(f"{self.name}: {size} bytes were not free in time; try again")

    def fits(self, key: str, size: int) -> bool:
        """Whether so much more may be given to this key now."""
        mine = self._by[key]
        return self.used + size <= self.most and (not mine or mine + size <= self.most // 2)

    def change(self, key: str, size: int) -> None:
        """Count bytes that are given (or given back, if negative)."""
        self.used += size
        self._by[key] += size
        if self._by[key] <= 0:
            del self._by[key]
        if size < 0:
            self._serve()

    def _serve(self) -> None:
        for entry in list(self._waiting):
            turn, key, size = entry
            if self.fits(key, size):
                self._waiting.remove(entry)
                self.change(key, size)
                turn.set_result(None)
            elif self.used + size > self.most:
                break
