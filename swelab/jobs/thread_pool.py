"""Threads that process instances. A free thread takes the next instance. Lost instances are repeated."""

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any

from swelab.records import Record

RETRY_SECONDS = (1, 4, 16)
"""Seconds to wait before each repetition of an instance that was lost to infrastructure."""

Work = Callable[[Any], Record]
Todo = deque[tuple[str, Any]]
"""Instances in the order in which they start. Workers take instances out. Removed instances do not start."""


@dataclass(frozen=True)
class Done:
    """A finished instance: its key, its item, its record, and the wall seconds of its last attempt."""

    key: str
    item: Any
    record: Record
    seconds: float


def attempt(key: str, item: Any, work: Work, is_lost: Callable[[Any], bool]) -> Done:
    """Computes the record of an instance. A lost instance is repeated after each of RETRY_SECONDS."""
    waits = iter(RETRY_SECONDS)
    while True:
        start = time.monotonic()
        record = work(item)
        seconds = time.monotonic() - start
        wait = next(waits, None) if is_lost(record) else None
        if wait is None:
            return Done(key, item, record, seconds)
        time.sleep(wait)


LINGER_SECONDS = 0.005
"""Seconds for which a finished instance waits for further instances.

So several instances are written to disk together.
"""
AHEAD = 8
"""Number of finished instances that may wait to be written, in addition to one for each worker."""


@dataclass
class _Queue:
    """The state that threads and their consumer share.

    `done` is limited, so threads wait for slow writing.
    """

    waiting: Todo
    done: queue.Queue[Done | BaseException | None]
    stop: threading.Event = field(default_factory=threading.Event)
    drained: float = 0.0
    pause: threading.Event = field(default_factory=threading.Event)

    def work_off(self, work: Work, is_lost: Callable[[Any], bool]) -> None:
        """Processes instances until none is left or a thread has failed. Runs in each thread."""
        try:
            while not self.stop.is_set():
                try:
                    key, item = self.waiting.popleft()
                except IndexError:
                    break
                self.done.put(attempt(key, item, work, is_lost))
        except BaseException as error:
            self.stop.set()
            self.done.put(error)
        finally:
            self.done.put(None)

    def drain(self) -> list[Done | BaseException | None]:
        """Waits for a finished result. Returns all finished results, at most as many as may wait."""
        results = [self.done.get()]
        self.pause.wait(max(0.0, self.drained + LINGER_SECONDS - time.monotonic()))
        with contextlib.suppress(queue.Empty):
            for _ in range(self.done.maxsize):
                results.append(self.done.get_nowait())
        self.drained = time.monotonic()
        return results


class Threads:
    """Processes up to `count` instances at the same time, in threads of this process."""

    def __init__(self, count: int):
        self.count = count

    def run(
        self, todo: Todo, work: Work, is_lost: Callable[[Any], bool]
    ) -> Generator[list[Done], None, None]:
        """Yields lists of finished instances. Instances start in the order of `todo`.

        Raises an exception of `work` only after the running instances have been yielded.
        """
        shared = _Queue(todo, queue.Queue(self.count + AHEAD))
        left, fault = 0, None
        try:
            for _ in range(min(self.count, len(todo))):
                threading.Thread(target=shared.work_off, args=(work, is_lost)).start()
                left += 1
            while left:
                found = shared.drain()
                left -= found.count(None)
                fault = fault or next((each for each in found if isinstance(each, BaseException)), None)
                if done := [each for each in found if isinstance(each, Done)]:
                    yield done
        finally:
            shared.stop.set()
            while left:
                left -= shared.drain().count(None)
        if fault:
            raise fault
