"""Leases sandboxes on container hosts: leases expire unless renewed, and requests wait in a fair queue.

All of it runs in one event loop. The pool writes a change of a lease to disk before it reports the change,
and requests to nodes are idempotent. So a killed server continues after its restart.
"""

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swelab.pool.create_sandbox import make
from swelab.pool.ended_leases import GIVEN_BACK, EndedLeases
from swelab.pool.idempotency import Conflict
from swelab.pool.lease_store import LeaseStore
from swelab.pool.leases import ACTIVE, ENDED, ENDING, MAKING, PLACED, WAITING, Lease
from swelab.pool.node_client import Link
from swelab.pool.node_health import PoolNode
from swelab.pool.placement import plan
from swelab.pool.request_bodies import fingerprint
from swelab.pool.request_schemas import PoolRequest
from swelab.sandbox.protocol import EngineDown, SandboxLost
from swelab.sandbox.remote_protocol import CREATE_SECONDS, NoPlace

_PAUSE_SECONDS = 1.0
_END_SECONDS = 40.0
_TICK_SECONDS = 0.25
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PoolLimits:
    """`ttl_seconds`: life without renewal. `leases`: most placed leases. `waiting`: most queued requests."""

    ttl_seconds: float = 120.0
    leases: int = 1000
    waiting: int = 10_000


class Pool:
    """The leases, queue and nodes of one pool. `open_link` opens the connection to the node with a URL."""

    def __init__(self, store: LeaseStore, limits: PoolLimits, open_link: Callable[[str], Link]) -> None:
        self.store, self.limits, self.open_link = store, limits, open_link
        self.id = store.pool_id()
        self.leases: dict[str, Lease] = {}
        self.ended = EndedLeases()
        self.requests: dict[str, Lease] = {}
        self.nodes: dict[str, PoolNode] = {}
        self.counts = {"allocated": 0, "expired": 0, "lost": 0, "given_back": 0, "unwritten": 0}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._pumping = False
        self._served: dict[str, int] = {}

    # -- life of the server

    def start(self) -> None:
        """Load nodes and leases from the store, and continue their work."""
        for url, draining in self.store.nodes().items():
            self.add(url, draining)
        for row in self.store.leases():
            lease = Lease.read(row)
            self._enter(lease)
            if lease.state == ENDED:
                lease.over.set()
                self._bury(lease)
            elif lease.state == ACTIVE:
                lease.ends = time.monotonic() + self.limits.ttl_seconds
                self.future(lease).set_result(lease)
            elif lease.state == MAKING:
                lease.ends = time.monotonic() + self.limits.ttl_seconds
                self.spawn(make(self, lease))
            elif lease.state == ENDING:
                self.spawn(self._end(lease))
        self.spawn(self._tend())

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        """Start a background task; `stop` cancels it."""
        task: asyncio.Task[Any] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self) -> None:
        """Stop without ending any lease: the next server continues them."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for node in self.nodes.values():
            await node.link.close()
        self.store.close()

    # -- leases

    async def allocate(self, request: PoolRequest, seconds: float, client_gone: asyncio.Future[Any]) -> Lease:
        """Wait for the lease of a request; each request id has one. client_gone: done after a disconnect.

        Raises NoPlace (not placed in `seconds`), ImageMissing, Refused, Conflict, SandboxLost, OSError.
        """
        self.ended.check_request(request)
        lease = self.requests.get(request.request_id) or self._queue(request)
        if fingerprint(lease.request) != fingerprint(request):
            raise Conflict("request_id was used by another request")
        lease.unwanted = False
        if lease.state in (ENDING, ENDED):
            raise SandboxLost(lease.reason or GIVEN_BACK)
        made = self.future(lease)
        lease.waiters += 1
        try:
            await asyncio.wait({made, client_gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if lease.state == MAKING and not client_gone.done():
                await asyncio.wait(
                    {made, client_gone}, timeout=CREATE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            lease.waiters -= 1
            if not made.done() and lease.state == WAITING and not lease.waiters:
                self._forget(lease)
        if not made.done():
            lease.unwanted = lease.unwanted or not (client_gone.done() or lease.waiters)
            raise NoPlace(f"no host had room in {seconds:g} s")
        return await asyncio.shield(made)

    def _queue(self, request: PoolRequest) -> Lease:
        if sum(each.state == WAITING for each in self.leases.values()) >= self.limits.waiting:
            raise NoPlace(f"{self.limits.waiting} requests are waiting already")
        lease = Lease(request.request_id, request)
        self._enter(lease)
        self.pump()
        return lease

    def _enter(self, lease: Lease) -> None:
        self.leases[lease.id] = self.requests[lease.request_id] = lease

    def future(self, lease: Lease) -> asyncio.Future[Any]:
        """The future that is done once the lease has its sandbox or has failed."""
        if lease.outcome is None:
            lease.outcome = asyncio.get_running_loop().create_future()
        return lease.outcome

    def _forget(self, lease: Lease) -> None:
        """Remove a lease without a sandbox, as if its request had never come."""
        self.leases.pop(lease.id, None)
        self.requests.pop(lease.request_id, None)

    def cancel(self, request_id: str) -> bool:
        """Cancel a request: drop it if it waits, else end its lease. False if there is no such request."""
        lease = self.requests.get(request_id)
        if lease is None:
            return self.ended.of_request(request_id) is not None
        if lease.state == WAITING:
            self.fail(lease, SandboxLost("the request was cancelled"))
        elif lease.state == MAKING:
            lease.unwanted = True
        elif lease.state == ACTIVE:
            self.end(lease, "the request was cancelled")
        return True

    def find(self, lease_id: str) -> Lease:
        """The active lease with that id. Raises SandboxLost."""
        lease = self.leases.get(lease_id)
        self.ended.check(lease_id)
        if lease is None or lease.state in (WAITING, MAKING):
            raise SandboxLost("there is no such lease")
        if lease.state != ACTIVE:
            raise SandboxLost(lease.reason or "the sandbox is closed")
        return lease

    async def close(self, lease_id: str) -> bool:
        """End a lease and wait until its sandbox is gone or its node is silent. False if there is none."""
        lease = self.leases.get(lease_id)
        if lease is None:
            return self.ended.find(lease_id) is not None
        if lease.state == ACTIVE:
            self.counts["given_back"] += 1
            self.end(lease)
        try:
            await asyncio.wait_for(lease.over.wait(), _END_SECONDS)
        except TimeoutError:
            _log.warning("lease %s waits for its node to end it", lease.id)
        return True

    def end(self, lease: Lease, reason: str = "") -> None:
        """Begin to end a lease: the place on its node is free once the sandbox is gone."""
        lease.state, lease.reason = ENDING, reason
        self.write(lease)
        self.spawn(self._end(lease))

    async def _end(self, lease: Lease) -> None:
        while lease.state == ENDING:
            node = self.nodes.get(lease.node)
            # After that time the node has ended the sandbox by itself, since nobody renewed it.
            if node is None or node.silent_seconds() > self.limits.ttl_seconds:
                break
            try:
                await node.link.ask("/container/destroy", {"container_id": lease.container}, _END_SECONDS)
                break
            except Exception as error:
                _log.warning("lease %s has not ended yet: %s", lease.id, error)
                await asyncio.sleep(_PAUSE_SECONDS)
        self.over(lease)

    def over(self, lease: Lease, reason: str = "") -> None:
        """Finish a lease whose sandbox is gone. A `reason` means that the sandbox was lost."""
        if lease.state == ENDED:
            return
        if reason:
            self.counts["lost"] += 1
            _log.warning("lease %s is lost: %s", lease.id, reason)
        lease.state, lease.reason = ENDED, reason or lease.reason
        self.write(lease)
        lease.over.set()
        self._bury(lease)
        self.pump()

    def _bury(self, lease: Lease) -> None:
        self._forget(lease)
        for lease_id in self.ended.add(lease):
            self.drop(lease_id)

    def write(self, lease: Lease) -> bool:
        """Write a lease to the store. False if that fails, as on a full disk: then `_pump` places none."""
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

    # -- placing

    def pump(self) -> None:
        """Schedule a placement of the waiting leases."""
        if not self._pumping:
            self._pumping = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pumping = False
        waiting = [lease for lease in self.leases.values() if lease.state == WAITING]
        if not waiting:
            return
        nodes = [node.capacity for node in self.nodes.values()]
        placed = [lease for lease in self.leases.values() if lease.state in PLACED]
        going, never = plan(waiting, nodes, placed, self.limits.leases, time.monotonic(), self._served)
        for lease, node in going:
            self._served[lease.client] = max(self._served.values(), default=0) + 1
            lease.state, lease.node, lease.attempt = MAKING, node.url, lease.attempt + 1
            if self.write(lease):
                self.spawn(make(self, lease))
            else:
                self.fail(lease, EngineDown("the pool cannot write down what it lends"))
        for lease_id, error in never.items():
            self.fail(self.leases[lease_id], error)

    def fail(self, lease: Lease, error: Exception) -> None:
        """Remove a lease without a sandbox; the request that waits for it raises `error`."""
        self._forget(lease)
        made = self.future(lease)
        if not made.done():
            made.set_exception(error)
            made.exception()  # marks it as retrieved: perhaps no client waits any more

    # -- nodes

    def add(self, url: str, draining: bool) -> PoolNode:
        """Add a node and start to watch it."""
        node = self.nodes[url] = PoolNode(url, self.open_link(url), draining)
        node.watching = self.spawn(node.watch(self))
        return node

    def placed(self, url: str) -> list[Lease]:
        """The leases that count against the capacity of a node."""
        return [each for each in self.leases.values() if each.node == url and each.state in PLACED]

    # -- time

    async def _tend(self) -> None:
        while True:
            now = time.monotonic()
            for lease in list(self.leases.values()):
                if lease.state == ACTIVE and lease.until() < now:
                    self.counts["expired"] += 1
                    self.end(lease, f"the lease was not renewed for {self.limits.ttl_seconds:g} s")
                elif lease.state == WAITING and not lease.waiters and lease.ends < now:
                    self._forget(lease)
            self.pump()
            await asyncio.sleep(_TICK_SECONDS)
