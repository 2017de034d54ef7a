"""sglang's router in front of several model servers of ours: one address, behind their token.

It sends a conversation where its beginning is still in a cache, leaves out servers that fail their health
checks and takes them in again, and repeats requests that a server took down with it. It listens on the
loopback interface.
"""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from swelab.jobs.child_process import Tethered, fault_line
from swelab.models import ServingError
from swelab.models.serving.server import free_port, open_log

LAUNCH = """
import json, sys
from sglang_router.router import Router
from sglang_router.router_args import RouterArgs
Router.from_args(RouterArgs(**json.load(open(sys.argv[1])))).start()
"""
SETTINGS = {
    "host": "127.0.0.1",
    "prometheus_host": "127.0.0.1",
    "policy": "cache_aware",
    "log_level": "warn",
    "health_check_interval_secs": 2,
    "health_check_timeout_secs": 25,
    "health_failure_threshold": 2,
    "health_success_threshold": 1,
    "cb_timeout_duration_secs": 5,
    "worker_startup_check_interval": 1,
}
READY_SECONDS = 60
POLL_SECONDS = 0.1


class Router:
    """A running router for the servers at `urls`; `url` is its address. Its port stays over a restart.

    `health`: path at which a server answers 200 while it generates tokens.
    Must be made and restarted in a thread that outlives it. Raises ServingError.
    """

    def __init__(self, urls: Sequence[str], key: str, log: Path, drain_seconds: float, health: str):
        self.health = health
        self.urls, self.key, self.log, self.drain_seconds = list(urls), key, log, drain_seconds
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self.start(len(self.urls))

    def start(self, wanted: int = 1) -> None:
        """Starts it and waits until it sends requests to so many servers."""
        settings = SETTINGS | {
            "port": self._port,
            "prometheus_port": free_port(),
            "api_key": self.key,
            "worker_urls": self.urls,
            "health_check_endpoint": self.health,
            "shutdown_grace_period_secs": round(self.drain_seconds),
        }
        with open_log(self.log) as stream:
            self._process = Tethered(
                lambda folder: [sys.executable, "-c", LAUNCH, f"{folder}/router.json"],
                env=dict(os.environ),
                log=stream,
                files={"router.json": json.dumps(settings).encode()},
            )
        deadline = time.monotonic() + READY_SECONDS
        while self.healthy() < wanted:
            if (status := self._process.poll()) is not None or time.monotonic() > deadline:
                self._process.stop(grace_seconds=0)
                state = "is not ready" if status is None else f"ended with {status}"
                raise ServingError(f"the router {state}: {fault_line(self.log)}; log: {self.log}")
            time.sleep(POLL_SECONDS)

    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def healthy(self) -> int:
        """How many servers it sends requests to; 0 while it does not answer."""
        try:
            answer = httpx.get(
                f"{self.url}/workers", headers={"Authorization": f"Bearer {self.key}"}, timeout=5
            )
            return sum(worker["is_healthy"] for worker in answer.json()["workers"])
        except (httpx.HTTPError, ValueError, KeyError):
            return 0

    def stop(self) -> None:
        """Takes no new requests, waits for those that run, ends."""
        self._process.stop(grace_seconds=self.drain_seconds)
