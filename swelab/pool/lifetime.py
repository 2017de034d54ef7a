"""How long a lent thing lives: until it is renewed no more, and while a request of it is answered."""

import contextlib
import time
from collections.abc import Iterator

LONGEST_SECONDS = 86400.0
"""What a host takes as seconds to live; no request of a pool exceeds it, whatever a client asks for."""


class Living:
    """A lease or a sandbox. `ends` and `busy` are of time.monotonic()."""

    ends: float
    busy: list[float]

    def until(self) -> float:
        """When it ends, unless it is renewed before."""
        return max((self.ends, *self.busy))

    def renew(self, seconds: float) -> None:
        """Let it live for these seconds from now, at least."""
        self.ends = max(self.ends, time.monotonic() + seconds)

    @contextlib.contextmanager
    def in_use(self, seconds: float) -> Iterator[None]:
        """It lives while a request is answered, for these seconds at most, and then as long as before."""
        deadline = time.monotonic() + seconds
        self.busy.append(deadline)
        try:
            yield
        finally:
            self.busy.remove(deadline)
