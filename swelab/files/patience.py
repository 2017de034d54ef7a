"""Decides when to repeat a request to a server: the Retry-After header, growing pauses, a limit."""

import email.utils
import math
import random
import time
from collections.abc import Mapping

LONGEST_PAUSE, LONGEST_WISH = 60.0, 3600.0
"""Seconds: longest pause of our own, and longest pause that a server may request."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds in Retry-After (seconds or a date) or in its variant in milliseconds; None without them.

    headers: a mapping with keys in lower case, or one that ignores case.
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
    """Pauses between the attempts at one request; each is twice the last, from a second to LONGEST_PAUSE."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Notes progress: restarts the time without progress, and the pauses."""
        self._began, self._pause = time.monotonic(), 1.0

    def next_pause(self, limit: float, wish: float = 0.0) -> float | None:
        """Seconds to wait before the next attempt; None if the time without progress would exceed `limit`.

        wish: seconds that the server requests (`retry_after`).
        """
        wait = max(min(wish, LONGEST_WISH), self._pause * random.uniform(0.5, 1.0))
        if time.monotonic() + wait - self._began > limit:
            return None
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        return wait
