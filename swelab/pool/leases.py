"""A lease: one sandbox for one client. A lease lasts from the request until the sandbox has ended."""

import asyncio
import functools
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from swelab.pool.idempotency import Conflict
from swelab.pool.renewal import Living
from swelab.pool.request_bodies import fingerprint
from swelab.pool.request_schemas import PoolRequest, footprint, limits_of
from swelab.records import Record, shorten
from swelab.sandbox.protocol import DEFAULT_LIMITS, Limits, SandboxLost
from swelab.sandbox.remote_protocol import Grant

WAITING, MAKING, ACTIVE, ENDING, ENDED = "waiting", "making", "active", "ending", "ended"
PLACED = (MAKING, ACTIVE, ENDING)
"""States in which a lease counts against the capacity of its node."""


@dataclass
class Lease(Living):
    """The lease of one request (request_schemas.ALLOCATE).

    ends: when an active lease expires, by time.monotonic(). passed, keeps: see placement.plan. unwanted: true
    if no client waits for the lease any more. An unwanted lease is ended as soon as its sandbox exists.
    """

    request_id: str
    request: PoolRequest
    id: str = field(default_factory=lambda: f"swe-lease-{secrets.token_hex(16)}")
    state: str = WAITING
    node: str = ""
    attempt: int = 0
    container: str = ""
    reason: str = ""
    ends: float = 0.0
    busy: list[float] = field(default_factory=list)
    since: float = field(default_factory=time.monotonic)
    waiters: int = 0
    passed: int = 0
    keeps: str = ""
    unwanted: bool = False
    outcome: asyncio.Future[Any] | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @functools.cached_property
    def limits(self) -> Limits:
        """The limits of the lease's sandbox."""
        return limits_of(self.request, DEFAULT_LIMITS)

    @functools.cached_property
    def memory(self) -> int:
        """Bytes of memory that the lease's sandbox may use, including files and output."""
        return footprint(self.limits)

    @property
    def image(self) -> str:
        """The key of the lease's image: digest or name, then the working folder."""
        return f"{self.request.digest or self.request.image} {self.request.get('cwd', '')}"

    @property
    def client(self) -> str:
        """The hash of the client's token. Capacity is shared evenly among tokens."""
        return self.request.client

    @property
    def beats(self) -> bool:
        """Whether the lease's client sends heartbeats even while a command runs."""
        return self.request.heartbeats

    def attempt_id(self) -> str:
        """Returns the request id that the node gets for the current attempt to create the sandbox."""
        return f"{self.id}.{self.attempt}"

    def to_store(self) -> Record:
        """Returns the fields to store, keyed by their names in the store. Only these fields survive a restart
        of the server."""
        names = ("id", "request_id", "state", "node", "attempt", "container", "reason")
        return {"asked": self.request, **{name: getattr(self, name) for name in names}}

    @classmethod
    def read(cls, row: Record) -> "Lease":
        """Creates a lease from a record that `stored` returned."""
        return cls(request=row["asked"], **{name: value for name, value in row.items() if name != "asked"})

    def answer(self, ttl: float) -> Grant:
        """Returns the response to the client. ttl: seconds that the lease lives without renewal."""
        return Grant(lease_id=self.id, container_id=self.container, node_url=self.node, ttl_seconds=ttl)


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
