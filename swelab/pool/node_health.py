"""One exec server as the pool sees it: asked every few seconds how it is and told what to keep."""

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Any

from swelab.pool.leases import ACTIVE, MAKING
from swelab.pool.node_client import Link
from swelab.pool.placement import Room
from swelab.pool.request_schemas import HostState

if TYPE_CHECKING:
    from swelab.pool.pool import Pool

_STRIKES = 3
_ANSWER_SECONDS = 5.0
_MOST_PAUSE = 5.0
_log = logging.getLogger(__name__)


async def renew(link: Link, owner: str, seconds: dict[str, float], patience: float) -> HostState:
    """Lets a pool's sandboxes on a host live so long from now; how the host is. Raises TimeoutError."""
    asked = {"owner": owner, "containers": seconds}
    return HostState.of(await link.ask("/container/renew", asked, patience))


class PoolNode:
    """A node and the connection to it."""

    def __init__(self, url: str, link: Link, draining: bool) -> None:
        self.room, self.link = Room(url, draining), link
        self.boot = ""
        self.last_answer = time.monotonic()
        self.strikes = 0
        self.watching: asyncio.Task[Any] | None = None

    def silent_seconds(self) -> float:
        """Since it answered last (or since this server started)."""
        return time.monotonic() - self.last_answer

    async def watch(self, pool: "Pool") -> None:
        """Renew, count, and find what is lost or left over, until cancelled."""
        ttl = pool.limits.ttl_seconds
        while True:
            try:
                await self._look(pool, min(_ANSWER_SECONDS, ttl / 2))
            except Exception as error:
                self.strikes += 1
                away = self.strikes >= _STRIKES or self.silent_seconds() > ttl
                if away and self.room.healthy:
                    self.room.healthy = False
                    _log.warning("node %s does not answer: %s", self.room.url, error)
                if self.silent_seconds() > ttl:
                    self._lose(pool)
            await asyncio.sleep(min(ttl / 5, _MOST_PAUSE))

    async def _look(self, pool: "Pool", seconds: float) -> None:
        now = time.monotonic()
        here = [lease for lease in pool.leases.values() if lease.node == self.room.url]
        live = {lease.container: lease for lease in here if lease.state == ACTIVE and lease.until() > now}
        left = {
            container: min(pool.limits.ttl_seconds, max(0.1, lease.until() - now))
            for container, lease in live.items()
        }
        told = await renew(self.link, pool.id, left, seconds)
        self.last_answer, self.strikes = time.monotonic(), 0
        self.boot = told.boot
        for container in told.unknown:
            lease = live.get(container)
            if lease is not None and lease.state == ACTIVE:
                pool.over(lease, "its host has it no more: it was ended there, or the host started again")
        for container in told.refused:
            _log.error("node %s did not renew %s: it does not take its time", self.room.url, container[:12])
        self._measure(pool, told)
        for container, request_id in told.extra.items():
            if not self._is_leased(pool, container, request_id):
                _log.warning("node %s has sandbox %s of no lease", self.room.url, container[:12])
                await self.link.ask("/container/destroy", {"container_id": container}, 40.0)

    def _is_leased(self, pool: "Pool", container: str, request_id: str) -> bool:
        """Whether a sandbox that was not renewed belongs to a lease, or is being made for one."""
        lease = pool.leases.get(request_id.partition(".")[0])
        if lease is None or lease.attempt_id() != request_id:
            return False
        return lease.state == MAKING or lease.container == container

    def _measure(self, pool: "Pool", state: HostState) -> None:
        room = self.room
        here = pool.placed(room.url)
        room.most_places, room.most_memory = state.max_containers, state.max_memory_bytes
        room.most_limits = state.max_limits
        room.foreign_places = max(0, state.active_containers - len(here))
        room.foreign_memory = max(0, state.memory_bytes - sum(each.memory for each in here))
        if state.healthy != room.healthy:
            _log.warning("node %s is %s", room.url, "healthy" if state.healthy else "without its engine")
        room.healthy = state.healthy
        pool.pump()

    def _lose(self, pool: "Pool") -> None:
        """End its leases: it was silent for a whole time to live, and has ended its sandboxes itself."""
        for lease in list(pool.leases.values()):
            if lease.node == self.room.url and lease.state == ACTIVE:
                pool.over(lease, f"its host did not answer for {self.silent_seconds():.0f} s")
