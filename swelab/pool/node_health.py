"""Watches one exec server.

Every few seconds the pool renews its sandboxes on the exec server and reads the server's state.
"""

import asyncio
import logging
import time

from swelab.pool.lease_book import LeaseBook
from swelab.pool.leases import ACTIVE, MAKING
from swelab.pool.pool_node import PoolNode
from swelab.pool.renewal import renew_on_host
from swelab.pool.request_schemas import HostState

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
