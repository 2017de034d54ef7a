"""Answers a request that comes again with what it was answered the first time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from swelab.pool.server_http import Conflict
from swelab.sandbox.protocol import SandboxLost

_KEPT_BYTES = 16 << 20
_MOST = 100_000
T = TypeVar("T")


class Once:
    """Runs the work of each request id once; asked again, then or later, it gives the same answer.

    The work goes on when the client goes away. `size` tells the bytes of an answer; the last `kept`
    answers stay, failures only with `keep_errors`.
    """

    def __init__(
        self, size: Callable[[Any], int] = lambda answer: 0, kept: int = 8, keep_errors: bool = True
    ) -> None:
        self._size, self._kept, self._keep_errors = size, kept, keep_errors
        self._tasks: dict[str, tuple[str, asyncio.Task[Any]]] = {}
        self._gone: dict[str, None] = {}

    async def run(self, key: str, fingerprint: str, work: Callable[[], Awaitable[T]]) -> T:
        """What the work answers or raises; without a key it is done each time.

        Raises Conflict (the id is another's), SandboxLost (too late).
        """
        if not key:
            return await asyncio.shield(asyncio.ensure_future(work()))
        if key in self._gone:
            raise SandboxLost("the answer to that request is not kept any more")
        if key not in self._tasks:
            task = asyncio.ensure_future(work())
            self._tasks[key] = fingerprint, task
            task.add_done_callback(lambda task: self._ended(key, task))
        known, task = self._tasks[key]
        if known != fingerprint:
            raise Conflict("request_id was used by another request")
        return await asyncio.shield(task)

    def _ended(self, key: str, task: asyncio.Task[Any]) -> None:
        if (task.cancelled() or task.exception()) and not self._keep_errors:
            self._tasks.pop(key, None)
        self._prune()

    def _prune(self) -> None:
        done = [key for key, (_, task) in self._tasks.items() if task.done()]
        held = {key: self._bytes(self._tasks[key][1]) for key in done}
        for key in done[:-1]:
            if len(held) <= self._kept and sum(held.values()) <= _KEPT_BYTES:
                break
            del self._tasks[key], held[key]
            self._gone[key] = None
        while len(self._gone) > _MOST:
            del self._gone[next(iter(self._gone))]

    def _bytes(self, task: asyncio.Task[Any]) -> int:
        failed = task.cancelled() or task.exception() is not None
        return 0 if failed else self._size(task.result())
