"""The leases and nodes of one pool. Makes each change of a lease in memory, in the store, and on its node."""

import asyncio
import logging
import sqlite3
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from swelab.pool.ended_leases import EndedLeases
from swelab.pool.lease_store import LeaseStore
from swelab.pool.leases import ACTIVE, ENDED, ENDING, MAKING, PLACED, WAITING, Lease
from swelab.pool.pool_node import PoolNode
from swelab.sandbox.protocol import SandboxLost

END_SECONDS = 40.0
_PAUSE_SECONDS = 1.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PoolLimits:
    """`ttl_seconds`: life without renewal. `leases`, `waiting`: maximum numbers of placed and of waiting
    leases."""

    ttl_seconds: float = 120.0
    leases: int = 1000
    waiting: int = 10_000


class LeaseBook(ABC):
    """The parts of a pool (`pool.Pool`) that `node_health` and `create_sandbox` need."""

    def __init__(self, store: LeaseStore, limits: PoolLimits) -> None:
        self.store, self.limits = store, limits
        self.id = store.pool_id()
        self.leases: dict[str, Lease] = {}
        self.ended = EndedLeases()
        self.requests: dict[str, Lease] = {}
        self.nodes: dict[str, PoolNode] = {}
        self.counts = {"allocated": 0, "expired": 0, "lost": 0, "given_back": 0, "unwritten": 0}
        self.tasks: set[asyncio.Task[Any]] = set()
        self._pumping = False

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Start a background task; `stop` cancels it."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def enter(self, lease: Lease) -> None:
        """Add a lease."""
        self.leases[lease.id] = self.requests[lease.request_id] = lease

    def future(self, lease: Lease) -> asyncio.Future[Any]:
        """The future that is done once the lease has its sandbox or has failed."""
        if lease.outcome is None:
            lease.outcome = asyncio.get_running_loop().create_future()
        return lease.outcome

    def forget(self, lease: Lease) -> None:
        """Remove a lease without a sandbox, as if its request had never come."""
        self.leases.pop(lease.id, None)
        self.requests.pop(lease.request_id, None)

    def find(self, lease_id: str) -> Lease:
        """The active lease with that id. Raises SandboxLost."""
        lease = self.leases.get(lease_id)
        self.ended.check(lease_id)
        if lease is None or lease.state in (WAITING, MAKING):
            raise SandboxLost("there is no such lease")
        if lease.state != ACTIVE:
            raise SandboxLost(lease.reason or "the sandbox is closed")
        return lease

    def fail(self, lease: Lease, error: Exception) -> None:
        """Remove a lease without a sandbox; the request that waits for it raises `error`."""
        self.forget(lease)
        made = self.future(lease)
        if not made.done():
            made.set_exception(error)
            made.exception()  # marks the error as retrieved, since perhaps no client waits

    def end(self, lease: Lease, reason: str = "") -> None:
        """Begin to end a lease. Its place on the node becomes free when its sandbox has ended."""
        lease.state, lease.reason = ENDING, reason
        self.write(lease)
        self.spawn(self.finish_ending(lease))

    async def finish_ending(self, lease: Lease) -> None:
        """Send requests to end the sandbox of an ending lease to its node, until one succeeds or the node is
        silent."""
        while lease.state == ENDING:
            node = self.nodes.get(lease.node)
            # After that time the node has ended the sandbox by itself, since nobody renewed it.
            if node is None or node.silent_seconds() > self.limits.ttl_seconds:
                break
            try:
                await node.link.ask("/container/destroy", {"container_id": lease.container}, END_SECONDS)
                break
            except Exception as error:
                _log.warning("lease %s has not ended yet: %s", lease.id, error)
                await asyncio.sleep(_PAUSE_SECONDS)
        self.over(lease)

    def over(self, lease: Lease, reason: str = "") -> None:
        """Finish a lease whose sandbox has ended. With a `reason`, the sandbox counts as lost."""
        if lease.state == ENDED:
            return
        if reason:
            self.counts["lost"] += 1
            _log.warning("lease %s is lost: %s", lease.id, reason)
        lease.state, lease.reason = ENDED, reason or lease.reason
        self.write(lease)
        lease.over.set()
        self.bury(lease)
        self.pump()

    def bury(self, lease: Lease) -> None:
        """Move an ended lease to the ended leases that we remember for a while."""
        self.forget(lease)
        for lease_id in self.ended.add(lease):
            self.drop(lease_id)

    def write(self, lease: Lease) -> bool:
        """Write a lease to the store. False if that fails (as on a full disk): do not place the lease
        then."""
        try:
            self.store.set_lease(lease.stored())
        except sqlite3.Error as error:
            self.counts["unwritten"] += 1
            _log.error("lease %s could not be written to the store: %s", lease.id, error)
            return False
        return True

    def drop(self, lease_id: str) -> None:
        """Delete a lease from the store."""
        try:
            self.store.drop_lease(lease_id)
        except sqlite3.Error as error:
            self.counts["unwritten"] += 1
            _log.error("lease %s could not be deleted from the store: %s", lease_id, error)

    def placed(self, url: str) -> list[Lease]:
        """The leases that count against the capacity of a node."""
        return [each for each in self.leases.values() if each.node == url and each.state in PLACED]

    def pump(self) -> None:
        """Schedule a placement of the waiting leases."""
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._place)

    def _place(self) -> None:
        self._pumping = False
        self.place()

    @abstractmethod
    def place(self) -> None:
        """Choose nodes for waiting leases, and start to make their sandboxes."""
