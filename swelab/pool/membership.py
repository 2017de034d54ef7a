"""Nodes that join a pool, are drained and leave it."""

import asyncio
import time
from typing import TYPE_CHECKING

from swelab.pool.front_door import Conflict
from swelab.pool.leases import ACTIVE
from swelab.pool.node_health import renew
from swelab.sandbox.remote_protocol import NotReached, Refused

if TYPE_CHECKING:
    from swelab.pool.pool import Pool

_LEAVE_SECONDS = 40.0
_PAUSE_SECONDS = 0.1


async def join(pool: "Pool", url: str) -> None:
    """Take a node in, or back after a drain. Raises NotReached, Conflict, and what the node tells."""
    link = pool.open_link(url)
    try:
        told = await renew(link, pool.id, {}, 10.0)
    except TimeoutError as error:
        raise NotReached(str(error)) from None
    finally:
        await link.close()
    if any(each.boot == told.boot and other != url for other, each in pool.nodes.items()):
        raise Conflict("that host is in the pool under another address")
    pool.store.set_node(url, False)
    node = pool.nodes.get(url) or pool.add(url, False)
    node.room.draining = False
    pool.pump()


def drain(pool: "Pool", url: str) -> int:
    """Place nothing more on a node; how many leases it still has. Raises Refused, OSError (disk full)."""
    if url not in pool.nodes:
        raise Refused("there is no such node")
    pool.store.set_node(url, True)
    pool.nodes[url].room.draining = True
    return len(pool.placed(url))


async def leave(pool: "Pool", url: str, force: bool) -> None:
    """Forget a node; with `force` its leases are ended first. Raises Refused, Conflict."""
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
