"""Asking a server again: what it says about when, how long to wait, and when to give up."""

import email.utils
import math
import random
import time
from collections.abc import Mapping

LONGEST_PAUSE, LONGEST_WISH = 60.0, 3600.0
"""Seconds: the longest pause of ours, and the longest that a server may ask for."""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that Retry-After (seconds or a date) or its form in milliseconds asks for; None without.

    headers: keys in lower case, or any case where the mapping does not tell them apart.
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
    """Pauses between tries of one thing: each twice the last, from a second to LONGEST_PAUSE."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Restarts the time without progress, and the pauses, after progress was made."""
        self._began, self._pause = time.monotonic(), 1.0

    def next_pause(self, limit: float, wish: float = 0.0) -> float | None:
        """Seconds to wait before the next try; None where more than `limit` would go by without progress.

        wish: seconds that the server asks for (`retry_after`).
        """
        wait = max(min(wish, LONGEST_WISH), self._pause * random.uniform(0.5, 1.0))
        if time.monotonic() + wait - self._began > limit:
            return None
        self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        return wait
