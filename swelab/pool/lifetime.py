"""The lifetime of a lease or sandbox: a time after its last renewal, and as long as a request runs."""

import contextlib
import time
from collections.abc import Iterator

LONGEST_SECONDS = 86400.0
"""Longest time to live of a sandbox on a host; renewals for longer are shortened to it."""


class Living:
    """A lease or a sandbox. ends: when it expires; busy: deadlines of its requests; by time.monotonic()."""

    ends: float
    busy: list[float]

    def until(self) -> float:
        """When it ends unless it is renewed."""
        return max((self.ends, *self.busy))

    def renew(self, seconds: float) -> None:
        """Extend the life to at least `seconds` from now."""
        self.ends = max(self.ends, time.monotonic() + seconds)

    @contextlib.contextmanager
    def in_use(self, seconds: float) -> Iterator[None]:
        """Keeps it alive during the block, for at most `seconds`; `ends` is unchanged afterwards."""
        deadline = time.monotonic() + seconds
        self.busy.append(deadline)
        try:
            yield
        finally:
            self.busy.remove(deadline)
