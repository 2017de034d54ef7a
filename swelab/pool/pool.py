"""Leases sandboxes on container hosts. Leases expire unless they are renewed.

Requests wait in a fair queue. The pool runs in one event loop. The pool writes each change of a lease to disk
before it reports the change. The pool's requests to nodes are idempotent. So a killed server can continue
after a restart.
"""

import asyncio
import logging
import sqlite3
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from swelab.pool.idempotency import Conflict
from swelab.pool.lease_store import LeaseStore
from swelab.pool.leases import ACTIVE, ENDED, ENDING, GIVEN_BACK, MAKING, PLACED, WAITING, EndedLeases, Lease
from swelab.pool.node_client import Link
from swelab.pool.placement import NodeCapacity, plan
from swelab.pool.renewal import renew_on_host
from swelab.pool.request_bodies import fingerprint
from swelab.pool.request_schemas import HostState, PoolRequest
from swelab.records import Record
from swelab.sandbox.protocol import EngineDown, ImageMissing, SandboxLost
from swelab.sandbox.remote_protocol import CREATE_SECONDS, NoPlace, NotReached


class PoolNode:
    """A node, the pool's connection to it, and the last known state of the node."""

    def __init__(self, url: str, link: Link, draining: bool) -> None:
        self.capacity, self.link = NodeCapacity(url, draining), link
        self.boot = ""
        self.last_answer = time.monotonic()
        self.strikes = 0
        self.watching: asyncio.Task[Any] | None = None

    def silent_seconds(self) -> float:
        """Returns the seconds since the node's last response, or since the server started."""
        return time.monotonic() - self.last_answer


END_SECONDS = 40.0


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


_ABSENT_SECONDS = 60.0
_PAUSE_SECONDS = 1.0
_ASK_SECONDS = 10.0  # timeout of one request; the request is repeated while the node is healthy
# total timeout; the first sandbox of an image takes long, since the host prepares the image
_MAKE_SECONDS = 2000.0


async def create_sandbox(book: LeaseBook, lease: Lease) -> None:
    """Creates the sandbox of a lease.

    On failure, queues the lease again or reports the error to its client.
    """
    node = book.nodes.get(lease.node)
    try:
        if node is None:
            raise NotReached(f"{lease.node} has left the pool")
        answer = await _make(book, lease, node)
    except Exception as error:
        _creation_failed(book, lease, node, error)
        return
    if lease.request.image or lease.request.digest:
        node.capacity.warm.add(lease.image)
    lease.container, lease.state = str(answer["container_id"]), ACTIVE
    lease.ends = time.monotonic() + book.limits.ttl_seconds
    book.write(lease)
    book.counts["allocated"] += 1
    book.future(lease).set_result(lease)
    if lease.unwanted:
        book.end(lease, "the request was cancelled")


async def _make(book: LeaseBook, lease: Lease, node: PoolNode) -> Record:
    names = ("image", "digest", "cwd", "tree", "forgets", "limits")
    body = {name: lease.request[name] for name in names if name in lease.request}
    body |= {"request_id": lease.attempt_id(), "owner": book.id, "ttl_seconds": book.limits.ttl_seconds}
    body |= {"name": lease.request.instance_id, "client": lease.client}
    ends = time.monotonic() + _MAKE_SECONDS
    while True:
        try:
            return await node.link.ask("/container/create", body, _ASK_SECONDS)
        except TimeoutError:
            if time.monotonic() > ends or not node.capacity.healthy:
                raise NotReached(f"{node.capacity.url} cannot make the sandbox") from None


def _creation_failed(book: LeaseBook, lease: Lease, node: PoolNode | None, error: Exception) -> None:
    """Queues the lease again. If the request itself caused the error, or if no client waits, fails the lease
    instead."""
    now = time.monotonic()
    again = isinstance(error, NotReached | NoPlace | EngineDown | ImageMissing | OSError)
    if node is not None and isinstance(error, ImageMissing):
        node.capacity.absent[lease.image] = now + _ABSENT_SECONDS, str(error)
    elif node is not None and again:
        node.capacity.paused_until = now + _PAUSE_SECONDS
    book.drop(lease.id)
    if again and not lease.unwanted and (lease.waiters or now < lease.ends):
        lease.state, lease.node = WAITING, ""
        book.pump()
    else:
        book.fail(lease, error)


_STRIKES = 3
_ANSWER_SECONDS = 5.0
_MOST_PAUSE = 5.0
_log = logging.getLogger(__name__)


async def watch(book: LeaseBook, node: PoolNode) -> None:
    """Renews leases, updates the node's capacity, and finds lost and orphaned sandboxes, until cancelled."""
    ttl = book.limits.ttl_seconds
    while True:
        try:
            await _look(book, node, min(_ANSWER_SECONDS, ttl / 2))
        except Exception as error:
            node.strikes += 1
            away = node.strikes >= _STRIKES or node.silent_seconds() > ttl
            if away and node.capacity.healthy:
                node.capacity.healthy = False
                _log.warning("node %s does not answer: %s", node.capacity.url, error)
            if node.silent_seconds() > ttl:
                _lose(book, node)
        await asyncio.sleep(min(ttl / 5, _MOST_PAUSE))


async def _look(book: LeaseBook, node: PoolNode, seconds: float) -> None:
    now = time.monotonic()
    here = [lease for lease in book.leases.values() if lease.node == node.capacity.url]
    live = {lease.container: lease for lease in here if lease.state == ACTIVE and lease.until() > now}
    left = {
        container: min(book.limits.ttl_seconds, max(0.1, lease.until() - now))
        for container, lease in live.items()
    }
    state = await renew_on_host(node.link, book.id, left, seconds)
    node.last_answer, node.strikes = time.monotonic(), 0
    node.boot = state.boot
    for container in state.unknown:
        lease = live.get(container)
        if lease is not None and lease.state == ACTIVE:
            book.over(lease, "its host lost it: the sandbox was ended there, or the host restarted")
    for container in state.refused:
        _log.error("node %s did not renew %s: it refused the time to live", node.capacity.url, container[:12])
    _measure(book, node, state)
    for container, request_id in state.extra.items():
        if not _is_leased(book, container, request_id):
            _log.warning("node %s has sandbox %s without a lease", node.capacity.url, container[:12])
            await node.link.ask("/container/destroy", {"container_id": container}, 40.0)


def _is_leased(book: LeaseBook, container: str, request_id: str) -> bool:
    """Returns whether a sandbox has a lease or is being created for a lease.

    container: a sandbox that exists on the node, but was not in the last renewal.
    """
    lease = book.leases.get(request_id.partition(".")[0])
    if lease is None or lease.attempt_id() != request_id:
        return False
    return lease.state == MAKING or lease.container == container


def _measure(book: LeaseBook, node: PoolNode, state: HostState) -> None:
    capacity = node.capacity
    here = book.placed_leases(capacity.url)
    capacity.most_places, capacity.most_memory = state.max_containers, state.max_memory_bytes
    capacity.most_limits = state.max_limits
    capacity.foreign_places = max(0, state.active_containers - len(here))
    capacity.foreign_memory = max(0, state.memory_bytes - sum(each.memory for each in here))
    if state.healthy != capacity.healthy:
        _log.warning("node %s is %s", capacity.url, "healthy" if state.healthy else "without its engine")
    capacity.healthy = state.healthy
    book.pump()


def _lose(book: LeaseBook, node: PoolNode) -> None:
    """Ends the leases of a node that has not responded for `ttl_seconds`.

    Such a node has ended the sandboxes of these leases by itself.
    """
    for lease in list(book.leases.values()):
        if lease.node == node.capacity.url and lease.state == ACTIVE:
            book.over(lease, f"its host did not answer for {node.silent_seconds():.0f} s")


_TICK_SECONDS = 0.25


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
                self.spawn(create_sandbox(self, lease))
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
                self.spawn(create_sandbox(self, lease))
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
