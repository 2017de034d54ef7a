"""Polite clients for the pool's benchmark. They count what they did."""

import asyncio
import random
import secrets
import time
from typing import Any

import httpx

TTL_SHARE = 4
_PATIENCE = 120.0
SMALL = {"memory_bytes": 64 << 20, "disk_bytes": 16 << 20}


class Lost(Exception):
    """The lease has ended."""


class Counts:
    """The counts and times of all polite clients together."""

    def __init__(self) -> None:
        self.seconds: list[float] = []  # of each exec
        self.servers: list[float] = []  # the same, less the time of the command itself
        self.done = self.lost = self.wrong = self.doubled = self.missing = 0


class Caller:
    """Sends requests. Retries a request with the same request id, as our own client does."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        own: dict[str, Any] = {"limits": httpx.Limits(max_connections=None), "timeout": _PATIENCE}
        self.http = httpx.AsyncClient(base_url=url, headers=headers, verify=False, trust_env=False, **own)

    async def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Returns the response to a request.

        Raises Lost if the lease has ended, TimeoutError after _PATIENCE.
        """
        ends = time.monotonic() + _PATIENCE
        while time.monotonic() < ends:
            try:
                answer = await self.http.post(path, json=body)
            except httpx.TransportError:
                await asyncio.sleep(0.2)
                continue
            reply: dict[str, Any] = answer.json()
            if answer.status_code == 200:
                return reply
            if not reply.get("retryable"):
                raise Lost(f"{path}: {reply.get('error')}")
            await asyncio.sleep(0.2)
        raise TimeoutError(path)


async def polite(caller: Caller, leases: int, counts: Counts, stop: asyncio.Event, pause: float) -> None:
    """Works in `leases` leases at the same time until `stop` is set. Replaces lost leases."""
    await asyncio.gather(*(_work(caller, counts, stop, pause) for _ in range(leases)))


async def _work(caller: Caller, counts: Counts, stop: asyncio.Event, pause: float) -> None:
    while not stop.is_set():
        request = {"tree": True, "heartbeats": True, "limits": SMALL, "request_id": secrets.token_hex(16)}
        lease: dict[str, Any] = {}
        try:
            reply = await caller.ask("/allocate", request)
            lease = {"lease_id": reply["lease_id"]}
            beating = asyncio.ensure_future(_beat(caller, lease, reply["ttl_seconds"] / TTL_SHARE))
            try:
                await _turns(caller, lease, counts, stop, pause)
            finally:
                beating.cancel()
            await caller.ask("/close", lease)
        except Lost:
            counts.lost += bool(lease)
        except TimeoutError:
            counts.wrong += 1


async def _beat(caller: Caller, lease: dict[str, Any], seconds: float) -> None:
    while True:
        await caller.ask("/heartbeat", {"lease_ids": [lease["lease_id"]]})
        await asyncio.sleep(seconds)


async def _turns(
    caller: Caller, lease: dict[str, Any], counts: Counts, stop: asyncio.Event, pause: float
) -> None:
    turn = 0
    while not stop.is_set():
        request = {**lease, "command": "echo x >> log; wc -l < log", "request_id": secrets.token_hex(16)}
        began = time.monotonic()
        reply = await caller.ask("/exec", request)
        counts.seconds.append(time.monotonic() - began)
        counts.servers.append(counts.seconds[-1] - reply["seconds"])
        turn += 1
        seen = int(reply["output"])
        counts.done += 1
        counts.doubled += max(0, seen - turn)
        counts.missing += max(0, turn - seen)
        turn = seen
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
