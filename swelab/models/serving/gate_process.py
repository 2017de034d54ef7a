"""Runs a gate as a process: starts and restarts it at one address, and reports to it which engines are up."""

import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from swelab.checks.probes import ask
from swelab.jobs.child_process import ChildProcess, fault_line
from swelab.jobs.proxies import bypass
from swelab.models import ServingError
from swelab.models.serving.server import free_port, is_free, open_log
from swelab.records import Fault

READY_SECONDS = 60
POLL_SECONDS = 0.05
MODULE = "swelab.models.serving.gate_server"
LIBRARY = str(Path(__file__).resolve().parents[3])


@dataclass(frozen=True)
class GateSettings:
    """The address of a gate, the token for its clients, and the engines behind it with the engines' key.
    names: the models that the gate lists. context_length: in tokens. vocabulary: valid token ids are smaller
    than this."""

    host: str
    port: int | None
    token: str = field(repr=False)
    engine: str
    engine_key: str = field(repr=False)
    urls: Sequence[str]
    names: Sequence[str]
    context_length: int
    vocabulary: int
    drain_seconds: float


class GateProcess:
    """A running gate. `url` is its address without /v1. A restart keeps the port. Create and restart it in a
    thread that outlives it. Raises ServingError."""

    def __init__(self, settings: GateSettings, log: Path):
        self.settings, self.log = settings, log
        host = settings.host
        if settings.port is not None and not is_free(settings.port, host):
            raise ServingError(
                f"port {settings.port} of {host} is in use or not permitted; expected a free port"
            )
        self._port = settings.port if settings.port is not None else free_port(host)
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{self._port}"
        bypass(host)
        self._lock, self._pipe = threading.Lock(), -1
        self._up = [True] * len(settings.urls)
        self.start(engines=1)

    def start(self, engines: int = 0) -> None:
        """Starts the process, and waits until it responds and at least `engines` of its engines generate."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        settings = {**vars(self.settings), "port": self._port, "up": self._up}
        path = os.pathsep.join(filter(None, (LIBRARY, os.environ.get("PYTHONPATH", ""))))
        with open_log(self.log) as stream:
            self._process = ChildProcess(
                lambda folder: [sys.executable, "-P", "-m", MODULE, f"{folder}/gate.json"],
                env={**os.environ, "PYTHONPATH": path},
                log=stream,
                files={"gate.json": json.dumps(settings).encode()},
                stdin=reading,
            )
        os.close(reading)
        with self._lock:
            self._close()
            self._pipe = writing
        self.set_up()
        deadline = time.monotonic() + READY_SECONDS
        while self.generating() < engines:
            if (status := self._process.poll()) is not None or time.monotonic() > deadline:
                self._process.stop(grace_seconds=0)
                state = "is not ready" if status is None else f"ended with {status}"
                raise ServingError(f"the gate {state}: {fault_line(self.log)}; log: {self.log}")
            time.sleep(POLL_SECONDS)

    def set_up(self, up: Sequence[bool] = ()) -> None:
        """Tells the gate which engines are up, so that only these engines get requests. Without `up`, sends
        the last list again."""
        with self._lock:
            self._up = list(up) or self._up
            with suppress(OSError):  # the gate has died: after a restart it gets the list again
                os.write(self._pipe, json.dumps(self._up).encode() + b"\n")

    def alive(self) -> bool:
        """Returns whether the gate's process runs."""
        return self._process.poll() is None

    def generating(self) -> int:
        """Returns the number of engines that generate, or -1 while the gate does not respond."""
        try:
            return int(ask(self.url, "/health", self.settings.token, seconds=5).json()["generating"])
        except (Fault, ValueError, KeyError):
            return -1

    def stop(self) -> None:
        """Stops the gate. It rejects new requests, and first finishes running requests."""
        self._process.stop(grace_seconds=self.settings.drain_seconds)
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
        self._pipe = -1
