"""Renews leases and sandboxes, which end without renewal. A running request can also keep a sandbox alive.

A client renews its leases by heartbeats (`renew_leases`). The pool renews the sandboxes of the leases on each
host (`renew_on_host`). Both functions set the expiry of a `Living` object. A host ends a sandbox by itself if
nobody renews the sandbox.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from swelab.pool.node_client import Link
from swelab.pool.request_schemas import HostState
from swelab.records import shorten
from swelab.sandbox.protocol import SandboxLost

LONGEST_SECONDS = 86400.0
"""Maximum time to live of a sandbox on a host. Longer renewals are reduced to this value."""


class Living:
    """A lease or a sandbox that can expire. Times are values of time.monotonic().

    ends: time of expiry. busy: deadlines of the running requests.
    """

    ends: float
    busy: list[float]

    def until(self) -> float:
        """Returns the time at which the lease or sandbox ends if nobody renews it."""
        return max((self.ends, *self.busy))

    def renew(self, seconds: float) -> None:
        """Extends the time to live to at least `seconds` from now."""
        self.ends = max(self.ends, time.monotonic() + seconds)

    @contextlib.contextmanager
    def in_use(self, seconds: float) -> Iterator[None]:
        """Keeps the lease or sandbox alive while the block runs, for at most `seconds`.

        `ends` stays unchanged.
        """
        deadline = time.monotonic() + seconds
        self.busy.append(deadline)
        try:
            yield
        finally:
            self.busy.remove(deadline)


def renew_leases(find: Callable[[str], Living], ids: Iterable[Any], seconds: float) -> dict[str, str]:
    """Renews the leases of a client one by one.

    Returns a map from each id that cannot be renewed to the reason. find: returns the active lease with an
    id, or raises SandboxLost.
    """
    lost = {}
    for lease_id in ids:
        try:
            if not isinstance(lease_id, str):
                raise SandboxLost("that is not the id of a lease")
            find(lease_id).renew(seconds)
        except SandboxLost as error:
            lost[shorten(str(lease_id))] = str(error)
    return lost


async def renew_on_host(link: Link, owner: str, seconds: dict[str, float], wait: float) -> HostState:
    """Renews a pool's sandboxes on a host and returns the state of the host. Raises TimeoutError.

    seconds: maps each sandbox id to the seconds that the sandbox may still live. wait: seconds to wait for
    the response.
    """
    asked = {"owner": owner, "containers": seconds}
    return HostState.of(await link.ask("/container/renew", asked, wait))
