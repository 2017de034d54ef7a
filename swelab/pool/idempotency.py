"""Answers a request that comes again with what it was answered the first time."""

import asyncio
import copy
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from swelab.sandbox.protocol import SandboxLost
from swelab.sandbox.remote_protocol import Refused

_KEPT_BYTES = 128 << 20
_KEPT_SECONDS = 900.0
_MOST = 20_000
T = TypeVar("T")


class Conflict(Refused):
    """The id of another request, or a request that the state does not allow."""

    status = 409


@dataclass(frozen=True)
class _Verdict:
    """How a request ended: its answer or its error, without what led to it."""

    fingerprint: str
    answer: Any
    error: BaseException | None
    size: int
    ended: float

    def outcome(self) -> Any:
        if self.error is not None:
            raise copy.copy(self.error)
        return self.answer


class Shelf:
    """Where all `Once` of a server keep their answers: so many bytes, for so many seconds.

    Where there are more, the one that keeps most gives up its oldest.
    """

    def __init__(self, most: int = _KEPT_BYTES, seconds: float = _KEPT_SECONDS) -> None:
        self.most, self.seconds = most, seconds
        self._all: dict[Once, None] = {}

    def enter(self, once: "Once") -> None:
        """Count what it keeps."""
        self._all[once] = None

    def leave(self, once: "Once") -> None:
        """Its sandbox has ended: nothing of it is kept."""
        self._all.pop(once, None)
        once.forget_before(time.monotonic())

    def size(self) -> int:
        """Bytes that are kept now."""
        return sum(each.size for each in self._all)

    def clear(self) -> None:
        """Give up what is too old or too much."""
        before = time.monotonic() - self.seconds
        for each in self._all:
            each.forget_before(before)
        while self.size() > self.most:
            max(self._all, key=lambda each: each.size).forget_oldest()


class Once:
    """Runs the work of each request id once; asked again, then or later, it gives the same answer.

    The work goes on when the client goes away. `size` tells the bytes of an answer; the last `kept`
    answers stay, failures only with `keep_errors`. For `known_seconds` more it is known that there was one.
    """

    def __init__(
        self,
        size: Callable[[Any], int] = lambda answer: 0,
        most: int = 8,
        keep_errors: bool = True,
        shelf: Shelf | None = None,
        known_seconds: float = math.inf,
    ) -> None:
        self._measure, self._most, self._keep_errors = size, most, keep_errors
        self._known_seconds = known_seconds
        self._shelf = shelf or Shelf()
        self._shelf.enter(self)
        self._running: dict[str, tuple[str, asyncio.Task[Any]]] = {}
        self._verdicts: dict[str, _Verdict] = {}
        self._abandoned: dict[str, float] = {}  # when its answer was given up
        self.size = 0

    def knows(self, key: str) -> bool:
        """Whether that request was asked before."""
        return key in self._running or key in self._verdicts or key in self._abandoned

    async def run(self, key: str, fingerprint: str, work: Callable[[], Awaitable[T]]) -> T:
        """What the work answers or raises; without a key it is done each time.

        Raises Conflict (the id is another's), SandboxLost (too late).
        """
        if not key:
            return await asyncio.shield(asyncio.ensure_future(work()))
        if key in self._abandoned:
            raise SandboxLost("the answer to that request is not kept any more")
        verdict = self._verdicts.get(key)
        known = verdict.fingerprint if verdict else self._running.get(key, (fingerprint,))[0]
        if known != fingerprint:
            raise Conflict("request_id was used by another request")
        if verdict is not None:
            answer: T = verdict.outcome()
            return answer
        if key not in self._running:
            task = asyncio.ensure_future(work())
            self._running[key] = fingerprint, task
            task.add_done_callback(lambda task: self._ended(key, task))
        return await asyncio.shield(self._running[key][1])

    def _ended(self, key: str, task: asyncio.Task[Any]) -> None:
        fingerprint, _ = self._running.pop(key)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None and not self._keep_errors:
            return
        answer = None if error is not None else task.result()
        size = 0 if error is not None else self._measure(answer)
        # A copy of an error is without the frames that it came through, and the objects that they hold.
        self._verdicts[key] = _Verdict(fingerprint, answer, copy.copy(error), size, time.monotonic())
        self.size += size
        while len(self._verdicts) > self._most:
            self.forget_oldest()
        self._shelf.clear()

    def forget_oldest(self) -> None:
        """Keep of the oldest answer that there was one."""
        key = next(iter(self._verdicts))
        self.size -= self._verdicts.pop(key).size
        self._abandoned[key] = time.monotonic()
        before = time.monotonic() - self._known_seconds
        while len(self._abandoned) > _MOST or next(iter(self._abandoned.values())) < before:
            del self._abandoned[next(iter(self._abandoned))]

    def forget_before(self, moment: float) -> None:
        """The same of all that ended before a moment of time.monotonic()."""
        while self._verdicts and next(iter(self._verdicts.values())).ended <= moment:
            self.forget_oldest()
