"""Decides when clients of servers repeat a request, and when they give up.

The waiting times of all clients are here. Code that polls waits by itself: a run at a service, an engine that
starts. So does code that turns to another server at once (the gate). `jobs.thread_pool` repeats an instance
that infrastructure lost.
"""

import email.utils
import math
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import sleep
from typing import TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=Exception)


@dataclass(frozen=True)
class Pauses:
    """Pauses between the attempts at one request. Each pause is twice as long as the previous one.

    first, longest: seconds. least: minimum share of a pause after random shortening, in [0, 1]. attempts:
    maximum number of attempts without progress.
    """

    first: float = 1.0
    longest: float = 60.0
    least: float = 0.5
    attempts: float = math.inf

    def after(self, failures: int) -> float:
        """Returns the seconds to wait after `failures` failures. failures: at least 1."""
        doubled = self.first * 2.0 ** min(failures - 1, 60)
        return min(self.longest, doubled) * random.uniform(self.least, 1.0)


DOWNLOADS = Pauses()
"""For the Hugging Face hub and image registries. Their clients give up after a time without progress."""
KEYS = Pauses()
"""For a key of a hosted model, if the service states no time.

`billing.api_keys` counts the failures of all threads.
"""
HOSTED = Pauses(least=0.0, longest=30.0, attempts=7)
"""For a hosted model that failed without a charge."""
UNSURE = Pauses(first=16.0, least=0.0, longest=30.0, attempts=3)
"""For a hosted model that may have charged for a failed request."""
SERVED = Pauses(first=0.5, least=0.0, longest=30.0, attempts=7)
"""For a model that we or a site serve."""
POOL = Pauses(first=0.05, longest=1.0)
"""For a pool server. Its clients give up after a time without a response."""
SUBMISSIONS = Pauses(least=1.0, longest=math.inf, attempts=4)
"""For predictions that SWE-bench's service did not accept. The first pause is the polling interval."""
LONGEST_WISH = 3600.0
"""Longest pause, in seconds, that a server may request."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds in the header Retry-After (seconds or a date) or Retry-After-Ms, or None without
    either.

    headers: a mapping with lower-case keys, or one that ignores case.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        text = headers.get(name, "").strip()
        if not text:
            continue
        try:
            seconds = float(text) * unit
        except ValueError:
            try:
                seconds = email.utils.parsedate_to_datetime(text).timestamp() - time.time()
            except (ValueError, OverflowError):
                continue
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


class Patience:
    """Counts the attempts at one request, and the time without progress."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self.renew()

    def renew(self) -> None:
        """Records progress: restarts the time without progress, and the pauses."""
        self._start, self._failures = time.monotonic(), 0

    def next_pause(self, limit: float = math.inf, wish: float = 0.0) -> float | None:
        """Returns the seconds to wait before the next attempt, or None if no further attempt should be made.

        That is so after the last attempt, and if the time without progress would exceed `limit` seconds.
        wish: seconds that the server requests (`retry_after`).
        """
        self._failures += 1
        wait = max(min(wish, LONGEST_WISH), self._pauses.after(self._failures))
        exhausted = self._failures >= self._pauses.attempts
        return None if exhausted or time.monotonic() + wait - self._start > limit else wait


def repeat(
    once: Callable[[], T], faults: type[E] | tuple[type[E], ...], pause: Callable[[E], float | None]
) -> T:
    """Calls `once` and returns its result. After one of `faults`, waits `pause(fault)` seconds and calls
    again.

    Raises the fault if `pause` returns None for it.
    """
    while True:
        try:
            return once()
        except faults as fault:
            seconds = pause(fault)
            if seconds is None:
                raise
        sleep(seconds)
