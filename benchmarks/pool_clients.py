"""Clients of a pool for its benchmark: polite ones that count what they did, and rude ones of every kind."""

import asyncio
import contextlib
import json
import random
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx

from swelab.sandbox.remote_protocol import BYTES

TTL_SHARE = 4
_PATIENCE = 120.0
_SMALL = {"memory_bytes": 64 << 20, "disk_bytes": 16 << 20}


class Lost(Exception):
    """The lease has ended."""


class Counts:
    """What polite clients saw, all of them together."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.done = self.lost = self.wrong = self.doubled = self.missing = 0


class Caller:
    """Requests that are sent again, with the same id, as our own client does."""

    def __init__(self, url: str, token: str) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=400)
        headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx.AsyncClient(base_url=url, headers=headers, limits=limits, timeout=_PATIENCE)

    async def ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """The answer. Raises Lost; TimeoutError when nothing comes for long."""
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
    """Holds so many leases and works in them by turns until it is stopped; a lost one is replaced."""
    await asyncio.gather(*(_work(caller, counts, stop, pause) for _ in range(leases)))


async def _work(caller: Caller, counts: Counts, stop: asyncio.Event, pause: float) -> None:
    while not stop.is_set():
        asked = {"tree": True, "heartbeats": True, "limits": _SMALL, "request_id": secrets.token_hex(16)}
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
        turn += 1
        seen = int(told["output"])
        counts.done += 1
        counts.doubled += max(0, seen - turn)
        counts.missing += max(0, turn - seen)
        turn = seen
        await asyncio.sleep(pause * random.uniform(0.5, 1.5))


class Rude:
    """A client that misbehaves in one way, again and again, until its process ends."""

    def __init__(self, url: str, token: str) -> None:
        self.place, self.token = urlsplit(url), token
        self.http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60)
        self.open: list[socket.socket] = []

    def run(self, number: int) -> None:
        """The way is the number's."""
        way = RUDE[number % len(RUDE)]
        while True:
            with contextlib.suppress(OSError, httpx.HTTPError, KeyError, ValueError):
                way(self)
            time.sleep(0.5)
            if len(self.open) > 300:
                self.hang_up()

    def hang_up(self) -> None:
        """Leave all that was begun."""
        for each in self.open:
            each.close()
        self.open.clear()

    def lease(self) -> dict[str, Any]:
        """A place of its own, not renewed."""
        asked = {"tree": True, "limits": _SMALL, "deadline_seconds": 20}
        return {"lease_id": self.http.post("/allocate", json=asked).json()["lease_id"]}

    def begin(self, path: str, kind: str, length: int, data: bytes = b"", more: str = "") -> None:
        """A request that stays open; nothing of its answer is read."""
        taken = socket.create_connection((self.place.hostname, self.place.port), timeout=20)
        self.open.append(taken)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\n{more}"
        taken.sendall(f"{head}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n".encode() + data)

    def too_long(self) -> None:
        """Asks for times that no host gives, and renews what is none."""
        lease = self.lease()
        for path, more in (("/exec", {"command": "true"}), ("/evaluate", {"eval_script": "set -e"})):
            self.http.post(path, json={**lease, **more, "timeout": 86390})
        self.http.post("/heartbeat", json={"lease_ids": [1, None, "../x", lease["lease_id"]]})

    def big_bodies(self) -> None:
        """Sends megabytes of wrong entries."""
        kind = {"Content-Type": "application/json"}
        self.http.post("/heartbeat", content=b'{"lease_ids": [' + b"1," * 700_000 + b"1]}", headers=kind)
        wrong = json.dumps(
            {"lease_id": "x", "command": "x", "env": dict.fromkeys(map(str, range(300_000)), 1)}
        )
        self.http.post("/exec", content=wrong, headers=kind)
        self.http.post("/exec", content=b"[" * 2_000_000, headers=kind)

    def reads_nothing(self) -> None:
        """Asks for files and does not read them."""
        lease = self.lease()
        self.http.post("/exec", json={**lease, "command": "head -c 30000000 /dev/zero > big"})
        body = json.dumps({**lease, "path": "big"}).encode()
        for _ in range(14):
            self.begin("/get", "application/json", len(body), body)

    def idles(self) -> None:
        """Connects without a token, and waits."""
        for _ in range(200):
            self.open.append(socket.create_connection((self.place.hostname, self.place.port), timeout=20))

    def names(self) -> None:
        """Names images that are none, or not allowed."""
        for image in ("x/../../distribution/127.0.0.1:9/a/b", "x/../version", "other/image:v1"):
            self.http.post("/allocate", json={"image": image, "deadline_seconds": 1})

    def ends_nothing(self) -> None:
        """Begins uploads and bodies and does not end them."""
        told = json.dumps({**self.lease(), "path": "f"})
        for _ in range(24):
            more = f"swelab-request: {told}\r\n"
            self.begin("/put", "application/octet-stream", 40 << 20, bytes(1 << 20), more)
            self.begin("/exec", "application/json", 4 << 20, b'{"command": "' + b"x" * (1 << 20))

    def dies(self) -> None:
        """Takes places, and asks for a large one that nobody can have now."""
        for _ in range(3):
            self.http.post("/evaluate", json={**self.lease(), "eval_script": "set -e", "timeout": 3600})
        limits = {"memory_bytes": 6 << 30, "disk_bytes": 1 << 30}
        self.http.post("/allocate", json={"tree": True, "limits": limits, "deadline_seconds": 5})

    def outputs(self) -> None:
        """Leaves big answers behind in sandboxes that end."""
        lease = self.lease()
        limits = {"output_bytes": 16 << 20}
        for _ in range(4):
            asked = {
                "command": "head -c 16000000 /dev/zero",
                "limits": limits,
                "request_id": secrets.token_hex(9),
            }
            self.http.post("/exec", json={**lease, **asked}, headers={"Accept": BYTES})
        self.http.post("/close", json=lease)


RUDE: list[Callable[[Rude], None]] = [
    *(Rude.too_long, Rude.big_bodies, Rude.reads_nothing, Rude.idles),
    *(Rude.names, Rude.ends_nothing, Rude.dies, Rude.outputs),
]
