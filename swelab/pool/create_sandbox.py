"""Creates the sandbox of a lease, on the node that was chosen for the lease."""

import time

from swelab.pool.lease_book import LeaseBook
from swelab.pool.leases import ACTIVE, WAITING, Lease
from swelab.pool.pool_node import PoolNode
from swelab.records import Record
from swelab.sandbox.protocol import EngineDown, ImageMissing
from swelab.sandbox.remote_protocol import NoPlace, NotReached

_ABSENT_SECONDS = 60.0
_PAUSE_SECONDS = 1.0
_ASK_SECONDS = 10.0  # timeout of one request; the request is repeated while the node is healthy
# total timeout; the first sandbox of an image takes long, since the host prepares the image
_MAKE_SECONDS = 2000.0


async def make(book: LeaseBook, lease: Lease) -> None:
    """Creates the sandbox of a lease.

    On failure, queues the lease again or reports the error to its client.
    """
    node = book.nodes.get(lease.node)
    try:
        if node is None:
            raise NotReached(f"{lease.node} has left the pool")
        answer = await _make(book, lease, node)
    except Exception as error:
        _not_make(book, lease, node, error)
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


def _not_make(book: LeaseBook, lease: Lease, node: PoolNode | None, error: Exception) -> None:
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
