"""How long a lease or a sandbox lives: some time after its last renewal, and while a request is answered."""

import contextlib
import time
from collections.abc import Iterator

LONGEST_SECONDS = 86400.0
"""Longest time to live that a host accepts; a pool asks hosts for no more, even if a client does."""


class Living:
    """A lease or a sandbox. `ends` and `busy` are of time.monotonic()."""

    ends: float
    busy: list[float]

    def until(self) -> float:
        """When it ends, if it is not renewed before."""
        return max((self.ends, *self.busy))

    def renew(self, seconds: float) -> None:
        """Let it live for at least these seconds from now."""
        self.ends = max(self.ends, time.monotonic() + seconds)

    @contextlib.contextmanager
    def in_use(self, seconds: float) -> Iterator[None]:
        """Lets it live while the block answers a request, for at most these seconds; afterwards as before."""
        deadline = time.monotonic() + seconds
        self.busy.append(deadline)
        try:
            yield
        finally:
            self.busy.remove(deadline)
