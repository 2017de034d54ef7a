"""The leases and nodes of one pool.

Each change of a lease is made in memory, in the store and on the node.
"""

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
    """The limits of a pool.

    ttl_seconds: time to live of a lease without renewal. leases: maximum number of placed leases. waiting:
    maximum number of waiting leases.
    """

    ttl_seconds: float = 120.0
    leases: int = 1000
    waiting: int = 10_000


class LeaseBook(ABC):
    """The part of a pool (`pool.Pool`) that the functions of `pool` use."""

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
        """Starts a background task. `Pool.stop` cancels the task."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def enter(self, lease: Lease) -> None:
        """Adds a lease."""
        self.leases[lease.id] = self.requests[lease.request_id] = lease

    def future(self, lease: Lease) -> asyncio.Future[Any]:
        """Returns the future that is done when the lease has its sandbox or has failed."""
        if lease.outcome is None:
            lease.outcome = asyncio.get_running_loop().create_future()
        return lease.outcome

    def forget(self, lease: Lease) -> None:
        """Removes a lease that has no sandbox, as if its request had never arrived."""
        self.leases.pop(lease.id, None)
        self.requests.pop(lease.request_id, None)

    def find(self, lease_id: str) -> Lease:
        """Returns the active lease with this id. Raises SandboxLost if there is none."""
        lease = self.leases.get(lease_id)
        self.ended.check(lease_id)
        if lease is None or lease.state in (WAITING, MAKING):
            raise SandboxLost("there is no such lease")
        if lease.state != ACTIVE:
            raise SandboxLost(lease.reason or "the sandbox is closed")
        return lease

    def fail(self, lease: Lease, error: Exception) -> None:
        """Removes a lease that has no sandbox. The request that waits for the lease raises `error`."""
        self.forget(lease)
        made = self.future(lease)
        if not made.done():
            made.set_exception(error)
            made.exception()  # marks the error as retrieved, since perhaps no client waits

    def end(self, lease: Lease, reason: str = "") -> None:
        """Starts to end a lease. The lease's slot on the node becomes free when the sandbox has ended."""
        lease.state, lease.reason = ENDING, reason
        self.write(lease)
        self.spawn(self.finish_ending(lease))

    async def finish_ending(self, lease: Lease) -> None:
        """Asks the node to end the sandbox of a lease, again and again until a request succeeds.

        Gives up if the node has not responded for `ttl_seconds`, or is no longer in the pool.
        """
        while lease.state == ENDING:
            node = self.nodes.get(lease.node)
            # A node that was silent for so long has ended the sandbox, since nobody renewed the sandbox.
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
        """Marks a lease as ended after its sandbox has ended. With a `reason`, the sandbox counts as lost."""
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
        """Moves an ended lease to `self.ended`, which remembers ended leases for a while."""
        self.forget(lease)
        for lease_id in self.ended.add(lease):
            self.drop(lease_id)

    def write(self, lease: Lease) -> bool:
        """Writes a lease to the store.

        Returns False if the write fails, for example on a full disk. A lease that could not be written must
        not be placed.
        """
        try:
            self.store.set_lease(lease.to_store())
        except sqlite3.Error as error:
            self.counts["unwritten"] += 1
            _log.error("lease %s could not be written to the store: %s", lease.id, error)
            return False
        return True

    def drop(self, lease_id: str) -> None:
        """Deletes a lease from the store."""
        try:
            self.store.drop_lease(lease_id)
        except sqlite3.Error as error:
            self.counts["unwritten"] += 1
            _log.error("lease %s could not be deleted from the store: %s", lease_id, error)

    def placed_leases(self, url: str) -> list[Lease]:
        """Returns the leases that count against the capacity of a node."""
        return [each for each in self.leases.values() if each.node == url and each.state in PLACED]

    def pump(self) -> None:
        """Schedules a call of `place`. Several calls of this method can lead to one call of `place`."""
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._place)

    def _place(self) -> None:
        self._pumping = False
        self.place()

    @abstractmethod
    def place(self) -> None:
        """Chooses nodes for waiting leases, and starts to create their sandboxes."""
