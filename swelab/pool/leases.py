"""A lease: one sandbox lent to one caller, from the request on."""

import asyncio
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

from swelab.pool.request_schemas import limits_of
from swelab.records import Record
from swelab.sandbox.protocol import DEFAULT_LIMITS, Limits

WAITING, MAKING, ACTIVE, ENDING, ENDED = "waiting", "making", "active", "ending", "ended"
PLACED = (MAKING, ACTIVE, ENDING)
"""States in which a lease takes a place on its node."""


@dataclass
class Lease:
    """`asked` is the request (shapes.ALLOCATE); `ends` is of time.monotonic(), for active ones."""

    request_id: str
    asked: Record
    id: str = field(default_factory=lambda: f"swe-lease-{secrets.token_hex(16)}")
    state: str = WAITING
    node: str = ""
    attempt: int = 0
    container: str = ""
    reason: str = ""
    ends: float = 0.0
    since: float = field(default_factory=time.monotonic)
    waiters: int = 0
    unwanted: bool = False
    made: asyncio.Future[Any] | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def limits(self) -> Limits:
        """Of its sandbox."""
        return limits_of({"limits": self.asked.get("limits", {})}, DEFAULT_LIMITS)

    @property
    def memory(self) -> int:
        """Bytes that its sandbox may use."""
        return self.limits.memory_bytes

    @property
    def image(self) -> str:
        """The key of its image: digest (or name) and working folder."""
        return f"{self.asked.get('digest') or self.asked.get('image', '')} {self.asked.get('cwd', '')}"

    @property
    def run(self) -> str:
        """The run that asked for it: places are shared out evenly among runs."""
        return str(self.asked.get("run", ""))

    @property
    def beats(self) -> bool:
        """Whether its caller renews it also while a command runs."""
        return bool(self.asked.get("heartbeats"))

    def attempt_id(self) -> str:
        """The request id under which the node knows this attempt to make the sandbox."""
        return f"{self.id}.{self.attempt}"

    def kept(self) -> Record:
        """The fields that are kept over a restart of the server."""
        names = ("id", "request_id", "asked", "state", "node", "attempt", "container", "reason")
        return {name: getattr(self, name) for name in names}

    def answer(self, ttl: float) -> Record:
        """The fields that the caller gets."""
        return {
            "lease_id": self.id,
            "container_id": self.container,
            "node_url": self.node,
            "ttl_seconds": ttl,
        }
