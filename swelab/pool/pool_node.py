"""A node of a pool: its capacity, the connection to it, and the time of its last response."""

import asyncio
import time
from typing import Any

from swelab.pool.node_client import Link
from swelab.pool.placement import NodeCapacity


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
