"""Rude clients for the pool's benchmark. After an event, each client misbehaves in one of eight ways.

They stand for clients on other machines. So they run at idle priority, and exist before the first
measurement.
"""

import contextlib
import json
import os
import secrets
import socket
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from typing import Any
from urllib.parse import urlsplit

import httpx

from benchmarks.pool_clients import SMALL
from swelab.sandbox.remote_protocol import BYTES


def rude_client(url: str, token: str, number: int, now: Event, pause: float) -> None:
    """Works politely in one sandbox until the event. Then misbehaves until its process is ended."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    client = Rude(url, token)
    with contextlib.suppress(OSError, httpx.HTTPError, KeyError, ValueError):
        client.behave(now, pause)
    now.wait()
    client.run(number)


class Rude:
    """A client that misbehaves in one way, repeatedly, until its process ends."""

    def __init__(self, url: str, token: str) -> None:
        self.place, self.token = urlsplit(url), token
        self.http = httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}, timeout=60)
        self.open: list[socket.socket] = []

    def run(self, number: int) -> None:
        """Misbehaves repeatedly. The client's number selects the kind of misbehaviour."""
        way = RUDE[number % len(RUDE)]
        while True:
            with contextlib.suppress(OSError, httpx.HTTPError, KeyError, ValueError):
                way(self)
            time.sleep(0.5)
            if len(self.open) > 300:
                self.hang_up()

    def behave(self, now: Event, pause: float) -> None:
        """Works like a polite client until the event."""
        lease = self.lease()
        while not now.wait(pause):
            self.http.post("/exec", json={**lease, "command": "echo x >> log; wc -l < log"})
        self.http.post("/close", json=lease)

    def hang_up(self) -> None:
        """Closes all connections that this client left open."""
        for each in self.open:
            each.close()
        self.open.clear()

    def lease(self) -> dict[str, Any]:
        """Takes a new lease, which is never renewed."""
        request = {"tree": True, "limits": SMALL, "deadline_seconds": 20}
        return {"lease_id": self.http.post("/allocate", json=request).json()["lease_id"]}

    def begin(self, path: str, kind: str, length: int, data: bytes = b"", more: str = "") -> None:
        """Starts a request without reading its response. The connection stays open."""
        connection = socket.create_connection((self.place.hostname, self.place.port), timeout=20)
        self.open.append(connection)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\n{more}"
        connection.sendall(f"{head}Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n".encode() + data)

    def too_long(self) -> None:
        """Requests timeouts that no host allows, and renews leases that do not exist."""
        lease = self.lease()
        for path, more in (("/exec", {"command": "true"}), ("/evaluate", {"eval_script": "set -e"})):
            self.http.post(path, json={**lease, **more, "timeout": 86390})
        self.http.post("/heartbeat", json={"lease_ids": [1, None, "../x", lease["lease_id"]]})

    def big_bodies(self) -> None:
        """Sends megabytes of invalid entries."""
        kind = {"Content-Type": "application/json"}
        self.http.post("/heartbeat", content=b'{"lease_ids": [' + b"1," * 700_000 + b"1]}", headers=kind)
        wrong = json.dumps(
            {"lease_id": "x", "command": "x", "env": dict.fromkeys(map(str, range(300_000)), 1)}
        )
        self.http.post("/exec", content=wrong, headers=kind)
        self.http.post("/exec", content=b"[" * 2_000_000, headers=kind)

    def reads_nothing(self) -> None:
        """Requests files, and does not read the responses."""
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
        """Requests images that do not exist, or are not allowed."""
        for image in ("x/../../distribution/127.0.0.1:9/a/b", "x/../version", "other/image:v1"):
            self.http.post("/allocate", json={"image": image, "deadline_seconds": 1})

    def ends_nothing(self) -> None:
        """Starts uploads and request bodies, and does not finish them."""
        request = json.dumps({**self.lease(), "path": "f"})
        for _ in range(24):
            more = f"swelab-request: {request}\r\n"
            self.begin("/put", "application/octet-stream", 40 << 20, bytes(1 << 20), more)
            self.begin("/exec", "application/json", 4 << 20, b'{"command": "' + b"x" * (1 << 20))

    def dies(self) -> None:
        """Takes leases for long evaluations, and requests a lease that is too large for the free memory."""
        for _ in range(3):
            self.http.post("/evaluate", json={**self.lease(), "eval_script": "set -e", "timeout": 3600})
        limits = {"memory_bytes": 6 << 30, "disk_bytes": 1 << 30}
        self.http.post("/allocate", json={"tree": True, "limits": limits, "deadline_seconds": 5})

    def outputs(self) -> None:
        """Runs commands with large outputs, each with a request id, and closes the lease."""
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
