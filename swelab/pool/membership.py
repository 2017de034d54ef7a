"""Lets nodes join a pool, drains them, lets them leave."""

import asyncio
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from swelab.pool.idempotency import Conflict
from swelab.pool.lease_store import LeaseStore
from swelab.pool.leases import ACTIVE
from swelab.pool.node_health import renew
from swelab.pool.request_schemas import NODE, first_fault
from swelab.records import InputError
from swelab.sandbox.remote_protocol import NotReached, Refused

if TYPE_CHECKING:
    from swelab.pool.pool import Pool

_LEAVE_SECONDS = 40.0
_PAUSE_SECONDS = 0.1


def take_in(store: LeaseStore, urls: Iterable[str]) -> str:
    """Add the nodes of a command line to those of an earlier start; a line about these, or "".

    A node that is kept stays as it was, also one that is drained; one that was told to leave stays out until
    it joins by request. Raises InputError, OSError (disk full).
    """
    given = list(dict.fromkeys(url.rstrip("/") for url in urls))
    for url in given:
        if first_fault(NODE, {"url": url}):
            raise InputError(f"--node {url}", expected="an address such as http://host:5000")
    kept, left = store.nodes(), store.left_nodes()
    new = [url for url in given if url not in kept and url not in left]
    for url in new:
        store.set_node(url, False)
    out = [url for url in given if url in left and url not in kept]
    if not kept and not out:
        return ""
    shown = [url + " (drained)" * drained for url, drained in kept.items()]
    told = f"nodes of an earlier start: {', '.join(shown) or 'none'}; added: {', '.join(new) or 'none'}"
    return told + f"; not added, as they left by request: {', '.join(out)}" * bool(out)


async def join(pool: "Pool", url: str) -> None:
    """Add a node, or use it again after a drain. Raises NotReached, Conflict, and the node's own errors."""
    link = pool.open_link(url)
    try:
        health = await renew(link, pool.id, {}, 10.0)
    except TimeoutError as error:
        raise NotReached(str(error)) from None
    finally:
        await link.close()
    if any(each.boot == health.boot and other != url for other, each in pool.nodes.items()):
        raise Conflict("that host is in the pool under another address")
    pool.store.set_node(url, False)
    node = pool.nodes.get(url) or pool.add(url, False)
    node.room.draining = False
    pool.pump()


def drain(pool: "Pool", url: str) -> int:
    """Place nothing more on a node; returns the number of its leases. Raises Refused, OSError (disk full)."""
    if url not in pool.nodes:
        raise Refused("there is no such node")
    pool.store.set_node(url, True)
    pool.nodes[url].room.draining = True
    return len(pool.placed(url))


async def leave(pool: "Pool", url: str, force: bool) -> None:
    """Remove a node; with `force` its leases are ended first. Raises Refused, Conflict."""
    count = drain(pool, url)
    node, ends = pool.nodes[url], time.monotonic() + _LEAVE_SECONDS
    if count and not force:
        raise Conflict(f"{count} leases still run on it; the node is drained")
    for lease in pool.placed(url):
        if lease.state == ACTIVE:
            pool.end(lease, "its node left the pool")
    while pool.placed(url) and time.monotonic() < ends:
        await asyncio.sleep(_PAUSE_SECONDS)
    if pool.placed(url):
        raise Conflict("its leases have not ended in time; the node is drained")
    pool.store.drop_node(url)
    pool.nodes.pop(url, None)
    if node.watching:
        node.watching.cancel()
    await node.link.close()
