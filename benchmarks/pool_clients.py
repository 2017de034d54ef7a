"""Polite clients of a pool for its benchmark: they count what they did."""

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
        self.servers: list[float] = []  # the same without the command itself
        self.done = self.lost = self.wrong = self.doubled = self.missing = 0


class Caller:
    """Sends requests, and repeats them with the same id, as our own client does."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        own: dict[str, Any] = {"limits": httpx.Limits(max_connections=None), "timeout": _PATIENCE}
        self.http = httpx.AsyncClient(base_url=url, headers=headers, verify=False, trust_env=False, **own)

    async def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The response to a request. Raises Lost; TimeoutError if there is no response for a long time."""
        ends = time.monotonic() + _PATIENCE
        while time.monotonic() < ends:
            try:
                answer = await self.http.post(path, json=body)
            except httpx.TransportError:
                await asyncio.sleep(0.2)
                continue
            told: dict[str, Any] = answer.json()
            if answer.status_code == 200:
                return told
            if not told.get("retryable"):
                raise Lost(f"{path}: {told.get('error')}")
            await asyncio.sleep(0.2)
        raise TimeoutError(path)


async def polite(caller: Caller, leases: int, counts: Counts, stop: asyncio.Event, pause: float) -> None:
    """Holds `leases` leases and works in all of them until `stop` is set; replaces a lost lease."""
    await asyncio.gather(*(_work(caller, counts, stop, pause) for _ in range(leases)))


async def _work(caller: Caller, counts: Counts, stop: asyncio.Event, pause: float) -> None:
    while not stop.is_set():
        asked = {"tree": True, "heartbeats": True, "limits": SMALL, "request_id": secrets.token_hex(16)}
        lease: dict[str, Any] = {}
        try:
            told = await caller.ask("/allocate", asked)
            lease = {"lease_id": told["lease_id"]}
            beating = asyncio.ensure_future(_beat(caller, lease, told["ttl_seconds"] / TTL_SHARE))
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
        asked = {**lease, "command": "echo x >> log; wc -l < log", "request_id": secrets.token_hex(16)}
        began = time.monotonic()
        told = await caller.ask("/exec", asked)
        counts.seconds.append(time.monotonic() - began)
        counts.servers.append(counts.seconds[-1] - told["seconds"])
        turn += 1
        seen = int(told["output"])
        counts.done += 1
        counts.doubled += max(0, seen - turn)
        counts.missing += max(0, turn - seen)
        turn = seen
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))
