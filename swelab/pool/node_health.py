"""Watches one exec server: every few seconds the pool renews its sandboxes there and reads its state."""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from swelab.pool.leases import ACTIVE, MAKING
from swelab.pool.node_client import Link
from swelab.pool.placement import NodeCapacity
from swelab.pool.request_schemas import HostState

if TYPE_CHECKING:
    from swelab.pool.pool import Pool

_STRIKES = 3
_ANSWER_SECONDS = 5.0
_MOST_PAUSE = 5.0
_log = logging.getLogger(__name__)


async def renew(link: Link, owner: str, seconds: dict[str, float], patience: float) -> HostState:
    """Renew a pool's sandboxes on a host; returns the state of the host. Raises TimeoutError.

    seconds: seconds to live from now, by sandbox. patience: seconds to wait for the response.
    """
    asked = {"owner": owner, "containers": seconds}
    return HostState.of(await link.ask("/container/renew", asked, patience))


class PoolNode:
    """A node, the connection to it, and its state as last seen by the pool."""

    def __init__(self, url: str, link: Link, draining: bool) -> None:
        self.capacity, self.link = NodeCapacity(url, draining), link
        self.boot = ""
        self.last_answer = time.monotonic()
        self.strikes = 0
        self.watching: asyncio.Task[Any] | None = None

    def silent_seconds(self) -> float:
        """Seconds since its last response, or since this server started."""
        return time.monotonic() - self.last_answer

    async def watch(self, pool: "Pool") -> None:
        """Until cancelled: renew leases, update the capacity, and find lost and orphaned sandboxes."""
        ttl = pool.limits.ttl_seconds
        while True:
            try:
                await self._look(pool, min(_ANSWER_SECONDS, ttl / 2))
            except Exception as error:
                self.strikes += 1
                away = self.strikes >= _STRIKES or self.silent_seconds() > ttl
                if away and self.capacity.healthy:
                    self.capacity.healthy = False
                    _log.warning("node %s does not answer: %s", self.capacity.url, error)
                if self.silent_seconds() > ttl:
                    self._lose(pool)
            await asyncio.sleep(min(ttl / 5, _MOST_PAUSE))

    async def _look(self, pool: "Pool", seconds: float) -> None:
        now = time.monotonic()
        here = [lease for lease in pool.leases.values() if lease.node == self.capacity.url]
        live = {lease.container: lease for lease in here if lease.state == ACTIVE and lease.until() > now}
        left = {
            container: min(pool.limits.ttl_seconds, max(0.1, lease.until() - now))
            for container, lease in live.items()
        }
        state = await renew(self.link, pool.id, left, seconds)
        self.last_answer, self.strikes = time.monotonic(), 0
        self.boot = state.boot
        for container in state.unknown:
            lease = live.get(container)
            if lease is not None and lease.state == ACTIVE:
                pool.over(lease, "its host lost it: the sandbox was ended there, or the host restarted")
        for container in state.refused:
            _log.error(
                "node %s did not renew %s: it refused the time to live", self.capacity.url, container[:12]
            )
        self._measure(pool, state)
        for container, request_id in state.extra.items():
            if not self._is_leased(pool, container, request_id):
                _log.warning("node %s has sandbox %s without a lease", self.capacity.url, container[:12])
                await self.link.ask("/container/destroy", {"container_id": container}, 40.0)

    def _is_leased(self, pool: "Pool", container: str, request_id: str) -> bool:
        """Whether a sandbox outside the renewal belongs to a lease, or is being made for one."""
        lease = pool.leases.get(request_id.partition(".")[0])
        if lease is None or lease.attempt_id() != request_id:
            return False
        return lease.state == MAKING or lease.container == container

    def _measure(self, pool: "Pool", state: HostState) -> None:
        capacity = self.capacity
        here = pool.placed(capacity.url)
        capacity.most_places, capacity.most_memory = state.max_containers, state.max_memory_bytes
        capacity.most_limits = state.max_limits
        capacity.foreign_places = max(0, state.active_containers - len(here))
        capacity.foreign_memory = max(0, state.memory_bytes - sum(each.memory for each in here))
        if state.healthy != capacity.healthy:
            _log.warning("node %s is %s", capacity.url, "healthy" if state.healthy else "without its engine")
        capacity.healthy = state.healthy
        pool.pump()

    def _lose(self, pool: "Pool") -> None:
        """End the leases of a node that was silent for a whole time to live: it has ended its sandboxes."""
        for lease in list(pool.leases.values()):
            if lease.node == self.capacity.url and lease.state == ACTIVE:
                pool.over(lease, f"its host did not answer for {self.silent_seconds():.0f} s")
