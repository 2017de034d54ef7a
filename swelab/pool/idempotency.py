"""Gives a repeated request the response of the first request, so that no work is done twice."""

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
    """Raised if the id belongs to another request, or if the current state does not allow the request."""

    status = 409


@dataclass(frozen=True)
class _Verdict:
    """The stored result of a request: its response or its error, without the traceback."""

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
    """Limits the responses that all `Once` objects of a server store together.

    Each response is dropped after `seconds` seconds. If all responses exceed `most` bytes, the `Once` object
    that stores the most bytes drops its oldest response.
    """

    def __init__(self, most: int = _KEPT_BYTES, seconds: float = _KEPT_SECONDS) -> None:
        self.most, self.seconds = most, seconds
        self._all: dict[Once, None] = {}

    def enter(self, once: "Once") -> None:
        """Starts to count the responses of `once`."""
        self._all[once] = None

    def leave(self, once: "Once") -> None:
        """Drops all responses of `once`. Call this when the sandbox of `once` has ended."""
        self._all.pop(once, None)
        once.forget_before(time.monotonic())

    def size(self) -> int:
        """Returns the size of all stored responses in bytes."""
        return sum(each.size for each in self._all)

    def clear(self) -> None:
        """Drops responses that are too old, and the oldest responses while the limit is exceeded."""
        before = time.monotonic() - self.seconds
        for each in self._all:
            each.forget_before(before)
        while self.size() > self.most:
            max(self._all, key=lambda each: each.size).forget_oldest()


class Once:
    """Runs the work of each request id once, and gives every repetition of the request the same response.

    The work continues if the client disconnects. size: function that returns the bytes of a response. most:
    maximum number of stored responses. keep_errors: whether errors are stored too. known_seconds: how long
    the id of a dropped response is remembered.
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
        self._abandoned: dict[str, float] = {}  # maps a request id to the time when its response was dropped
        self.size = 0

    def knows(self, key: str) -> bool:
        """Returns whether a request with this id has arrived before."""
        return key in self._running or key in self._verdicts or key in self._abandoned

    async def run(self, key: str, fingerprint: str, work: Callable[[], Awaitable[T]]) -> T:
        """Returns the result of `work`, or raises its error. key: the request id. If it is "", `work` runs at
        every call.

        Raises Conflict if another request has the same id, SandboxLost if the stored response was dropped.
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
            task.add_done_callback(lambda task: self._on_end(key, task))
        return await asyncio.shield(self._running[key][1])

    def _on_end(self, key: str, task: asyncio.Task[Any]) -> None:
        fingerprint, _ = self._running.pop(key)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None and not self._keep_errors:
            return
        answer = None if error is not None else task.result()
        size = 0 if error is not None else self._measure(answer)
        # An error is copied without its traceback, because the frames in a traceback would keep objects
        # alive.
        self._verdicts[key] = _Verdict(fingerprint, answer, copy.copy(error), size, time.monotonic())
        self.size += size
        while len(self._verdicts) > self._most:
            self.forget_oldest()
        self._shelf.clear()

    def forget_oldest(self) -> None:
        """Drops the oldest response and remembers only its request id."""
        key = next(iter(self._verdicts))
        self.size -= self._verdicts.pop(key).size
        self._abandoned[key] = time.monotonic()
        before = time.monotonic() - self._known_seconds
        while len(self._abandoned) > _MOST or next(iter(self._abandoned.values())) < before:
            del self._abandoned[next(iter(self._abandoned))]

    def forget_before(self, moment: float) -> None:
        """Drops all responses stored before `moment`, a value of time.monotonic()."""
        while self._verdicts and next(iter(self._verdicts.values())).ended <= moment:
            self.forget_oldest()
