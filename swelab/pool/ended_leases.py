"""Remembers recently ended leases: the request of each lease, and the reason for its end."""

import time
from dataclasses import dataclass

from swelab.pool.idempotency import Conflict
from swelab.pool.leases import Lease
from swelab.pool.request_bodies import fingerprint
from swelab.pool.request_schemas import PoolRequest
from swelab.records import shorten
from swelab.sandbox.protocol import SandboxLost

GIVEN_BACK = "that request's sandbox was given back"
_MOST = 10_000
_SECONDS = 900.0


@dataclass(frozen=True, slots=True)
class EndedLease:
    """The record of an ended lease. at: the value of time.monotonic() when the lease ended."""

    id: str
    request_id: str
    fingerprint: str
    reason: str
    at: float


class EndedLeases:
    """The leases that ended in the last 15 minutes (at most 10,000), indexed by lease id and by request
    id."""

    def __init__(self, most: int = _MOST, seconds: float = _SECONDS) -> None:
        self._most, self._seconds = most, seconds
        self._all: dict[str, EndedLease] = {}
        self._requests: dict[str, EndedLease] = {}

    def __len__(self) -> int:
        return len(self._all)

    def add(self, lease: Lease) -> list[str]:
        """Adds a lease. Returns the ids of the older leases that are dropped to stay within the limits."""
        reason = shorten(lease.reason, 500)
        ended = EndedLease(lease.id, lease.request_id, fingerprint(lease.request), reason, time.monotonic())
        self._all[ended.id] = self._requests[ended.request_id] = ended
        forgotten = []
        while True:
            oldest = next(iter(self._all.values()))
            if len(self._all) <= self._most and oldest.at >= ended.at - self._seconds:
                break
            forgotten.append(self._all.pop(oldest.id).id)
            if self._requests.get(oldest.request_id) is oldest:
                del self._requests[oldest.request_id]
        return forgotten

    def find(self, lease_id: str) -> EndedLease | None:
        """Returns the ended lease with this id, or None."""
        return self._all.get(lease_id)

    def check(self, lease_id: str) -> None:
        """Raises SandboxLost with the stored reason if this lease has ended."""
        if ended := self._all.get(lease_id):
            raise SandboxLost(ended.reason or "the sandbox is closed")

    def check_request(self, request: PoolRequest) -> None:
        """Raises an error if the lease of this request id has ended.

        The error is Conflict if another request used the id, otherwise SandboxLost.
        """
        if ended := self._requests.get(request.request_id):
            if ended.fingerprint != fingerprint(request):
                raise Conflict("request_id was used by another request")
            raise SandboxLost(ended.reason or GIVEN_BACK)

    def of_request(self, request_id: str) -> EndedLease | None:
        """Returns the ended lease of a request, or None."""
        return self._requests.get(request_id)
