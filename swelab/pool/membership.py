"""Adds nodes to a pool, drains nodes, and removes nodes."""

import asyncio
import time
from collections.abc import Iterable

from swelab.pool.idempotency import Conflict
from swelab.pool.lease_store import LeaseStore
from swelab.pool.leases import ACTIVE
from swelab.pool.pool import Pool
from swelab.pool.renewal import renew_on_host
from swelab.pool.request_schemas import NODE, first_fault
from swelab.records import InputError
from swelab.sandbox.remote_protocol import NotReached, Refused

_LEAVE_SECONDS = 40.0
_PAUSE_SECONDS = 0.1


def take_in(store: LeaseStore, urls: Iterable[str]) -> str:
    """Adds the nodes of the command line to the stored nodes.

    Returns a message about the nodes of an earlier start, or "" if there were none. A drained node stays
    drained. A node that was removed by request is not added: only `join` can add it again. Raises InputError,
    and OSError if the disk is full.
    """
    given = list(dict.fromkeys(url.rstrip("/") for url in urls))
    for url in given:
        if first_fault(NODE, {"url": url}):
            raise InputError(f"--node {url}", expected="an address such as http://host:5000")
    nodes, left = store.nodes(), store.left_nodes()
    new = [url for url in given if url not in nodes and url not in left]
    for url in new:
        store.set_node(url, False)
    out = [url for url in given if url in left and url not in nodes]
    if not nodes and not out:
        return ""
    shown = [url + " (drained)" * drained for url, drained in nodes.items()]
    line = f"nodes of an earlier start: {', '.join(shown) or 'none'}; added: {', '.join(new) or 'none'}"
    return line + f"; not added, as they left by request: {', '.join(out)}" * bool(out)


async def join(pool: Pool, url: str) -> None:
    """Adds a node, or uses a drained node again. Raises NotReached, Conflict, and the errors of the node."""
    link = pool.open_link(url)
    try:
        health = await renew_on_host(link, pool.id, {}, 10.0)
    except TimeoutError as error:
        raise NotReached(str(error)) from None
    finally:
        await link.close()
    if any(each.boot == health.boot and other != url for other, each in pool.nodes.items()):
        raise Conflict("that host is in the pool under another address")
    pool.store.set_node(url, False)
    node = pool.nodes.get(url) or pool.add(url, False)
    node.capacity.draining = False
    pool.pump()


def drain(pool: Pool, url: str) -> int:
    """Stops placing leases on a node. Returns the number of leases on the node.

    Raises Refused if the pool has no such node, OSError if the disk is full.
    """
    if url not in pool.nodes:
        raise Refused("there is no such node")
    pool.store.set_node(url, True)
    pool.nodes[url].capacity.draining = True
    return len(pool.placed_leases(url))


async def leave(pool: Pool, url: str, force: bool) -> None:
    """Removes a node. With `force`, ends the node's leases first.

    Raises Refused if the pool has no such node, Conflict if the node still has leases.
    """
    count = drain(pool, url)
    node, ends = pool.nodes[url], time.monotonic() + _LEAVE_SECONDS
    if count and not force:
        raise Conflict(f"{count} leases still run on it; the node is drained")
    for lease in pool.placed_leases(url):
        if lease.state == ACTIVE:
            pool.end(lease, "its node left the pool")
    while pool.placed_leases(url) and time.monotonic() < ends:
        await asyncio.sleep(_PAUSE_SECONDS)
    if pool.placed_leases(url):
        raise Conflict("its leases have not ended in time; the node is drained")
    pool.store.drop_node(url)
    pool.nodes.pop(url, None)
    if node.watching:
        node.watching.cancel()
    await node.link.close()
