"""Leases sandboxes on container hosts. Leases expire unless they are renewed.

Requests wait in a fair queue. The pool runs in one event loop. The pool writes each change of a lease to disk
before it reports the change. The pool's requests to nodes are idempotent. So a killed server can continue
after a restart.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from swelab.pool.create_sandbox import make
from swelab.pool.ended_leases import GIVEN_BACK
from swelab.pool.idempotency import Conflict
from swelab.pool.lease_book import END_SECONDS, LeaseBook, PoolLimits
from swelab.pool.lease_store import LeaseStore
from swelab.pool.leases import ACTIVE, ENDED, ENDING, MAKING, PLACED, WAITING, Lease
from swelab.pool.node_client import Link
from swelab.pool.node_health import watch
from swelab.pool.placement import plan
from swelab.pool.pool_node import PoolNode
from swelab.pool.request_bodies import fingerprint
from swelab.pool.request_schemas import PoolRequest
from swelab.sandbox.protocol import EngineDown, SandboxLost
from swelab.sandbox.remote_protocol import CREATE_SECONDS, NoPlace

_TICK_SECONDS = 0.25
_log = logging.getLogger(__name__)


class Pool(LeaseBook):
    """The leases, queue and nodes of one pool.

    open_link: opens a connection to the node with the given URL.
    """

    def __init__(self, store: LeaseStore, limits: PoolLimits, open_link: Callable[[str], Link]) -> None:
        super().__init__(store, limits)
        self.open_link = open_link
        self._served: dict[str, int] = {}

    # -- start and stop of the server

    def start(self) -> None:
        """Loads nodes and leases from the store and resumes unfinished work."""
        for url, draining in self.store.nodes().items():
            self.add(url, draining)
        for row in self.store.leases():
            lease = Lease.read(row)
            self.enter(lease)
            if lease.state == ENDED:
                lease.over.set()
                self.bury(lease)
            elif lease.state == ACTIVE:
                lease.ends = time.monotonic() + self.limits.ttl_seconds
                self.future(lease).set_result(lease)
            elif lease.state == MAKING:
                lease.ends = time.monotonic() + self.limits.ttl_seconds
                self.spawn(make(self, lease))
            elif lease.state == ENDING:
                self.spawn(self.finish_ending(lease))
        self.spawn(self._tend())

    async def stop(self) -> None:
        """Stops the server without ending any lease. The next server continues with the leases."""
        for task in list(self.tasks):
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        for node in self.nodes.values():
            await node.link.close()
        self.store.close()

    # -- leases

    async def allocate(self, request: PoolRequest, seconds: float, client_gone: asyncio.Future[Any]) -> Lease:
        """Waits for the lease of a request. Each request id gets one lease.

        client_gone: a future that is done when the client has disconnected. Raises NoPlace if the lease is
        not placed within `seconds`. Also raises ImageMissing, Refused, Conflict, SandboxLost, OSError.
        """
        self.ended.check_request(request)
        lease = self.requests.get(request.request_id) or self._queue(request)
        if fingerprint(lease.request) != fingerprint(request):
            raise Conflict("request_id was used by another request")
        lease.unwanted = False
        if lease.state in (ENDING, ENDED):
            raise SandboxLost(lease.reason or GIVEN_BACK)
        creation = self.future(lease)
        lease.waiters += 1
        try:
            await asyncio.wait({creation, client_gone}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if lease.state == MAKING and not client_gone.done():
                await asyncio.wait(
                    {creation, client_gone}, timeout=CREATE_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            lease.waiters -= 1
            if not creation.done() and lease.state == WAITING and not lease.waiters:
                self.forget(lease)
        if not creation.done():
            lease.unwanted = lease.unwanted or not (client_gone.done() or lease.waiters)
            raise NoPlace(f"no host had room in {seconds:g} s")
        return await asyncio.shield(creation)

    def _queue(self, request: PoolRequest) -> Lease:
        if sum(each.state == WAITING for each in self.leases.values()) >= self.limits.waiting:
            raise NoPlace(f"{self.limits.waiting} requests are waiting already")
        lease = Lease(request.request_id, request)
        self.enter(lease)
        self.pump()
        return lease

    def cancel(self, request_id: str) -> bool:
        """Removes a waiting request, or ends the lease of a request.

        Returns False if the request is unknown.
        """
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

    async def close(self, lease_id: str) -> bool:
        """Ends a lease, and waits up to END_SECONDS until the sandbox has ended.

        Returns False if there is no such lease.
        """
        lease = self.leases.get(lease_id)
        if lease is None:
            return self.ended.find(lease_id) is not None
        if lease.state == ACTIVE:
            self.counts["given_back"] += 1
            self.end(lease)
        try:
            await asyncio.wait_for(lease.over.wait(), END_SECONDS)
        except TimeoutError:
            _log.warning("lease %s waits for its node to end it", lease.id)
        return True

    # -- placing

    def place(self) -> None:
        """Chooses nodes for waiting leases, fairly among clients, and starts to create their sandboxes."""
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

    # -- nodes

    def add(self, url: str, draining: bool) -> PoolNode:
        """Adds a node and starts to watch it."""
        node = self.nodes[url] = PoolNode(url, self.open_link(url), draining)
        node.watching = self.spawn(watch(self, node))
        return node

    # -- time

    async def _tend(self) -> None:
        while True:
            now = time.monotonic()
            for lease in list(self.leases.values()):
                if lease.state == ACTIVE and lease.until() < now:
                    self.counts["expired"] += 1
                    self.end(lease, f"the lease was not renewed for {self.limits.ttl_seconds:g} s")
                elif lease.state == WAITING and not lease.waiters and lease.ends < now:
                    self.forget(lease)
            self.pump()
            await asyncio.sleep(_TICK_SECONDS)
