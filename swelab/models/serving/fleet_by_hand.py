"""Serves a fleet of model servers from the command line, behind one address with one token.

The servers run on this machine or on the nodes of the current SLURM job. They may also run elsewhere, started
by `scripts.serve`. Then only the gate runs here.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from swelab.configs.kinds.policy import Job
from swelab.jobs.proxies import bypass
from swelab.models import ServingError
from swelab.models.serving.complete_checkpoint import vocabulary
from swelab.models.serving.engine import DEFAULT_ENGINE
from swelab.models.serving.fleet import DRAIN_SECONDS, open_fleet
from swelab.models.serving.gate_process import GateProcess, GateSettings
from swelab.models.serving.serve_by_hand import (
    STARTUP_SECONDS,
    check_free,
    chosen_key,
    hold,
    private_file,
)
from swelab.models.serving.server import Endpoint
from swelab.records import InputError

CHECK_SECONDS = 0.5
STARTS = 5
"""Number of failed restarts in a row after which the gate counts as failed."""


@dataclass(frozen=True)
class Front:
    """The address of a fleet. key_env: environment variable with the token. token, log: files to which the
    token and the log are written. settings: as for `open_fleet`."""

    name: str
    host: str = "127.0.0.1"
    port: int | None = None
    key_env: str = ""
    token: Path = Path("server.token")
    log: Path = Path("server.log")
    settings: dict[str, Any] = field(default_factory=dict)


def serve_fleet_by_hand(weights: Path, job: Job, front: Front) -> None:
    """Serves on the nodes of `job` until Ctrl-C. `front.settings` are the settings of `open_fleet`. Raises
    InputError before anything starts, and ServingError if a server does not start or restart."""
    key, began = chosen_key(front.key_env, front.host), time.monotonic()
    check_free(front.token)
    with (
        hold(front.log),
        open_fleet(
            weights,
            name=front.name,
            job=job,
            log=front.log,
            api_key=key,
            host=front.host,
            port=front.port,
            startup_seconds=STARTUP_SECONDS,
            **front.settings,
        ) as (fleet, endpoint),
        private_file(front.token, endpoint.api_key + "\n"),
    ):
        _tell(endpoint, front, job.nodes * job.servers, time.monotonic() - began)
        try:
            fleet.await_end()
        except KeyboardInterrupt:
            print("stopped", flush=True)


def gate_by_hand(weights: Path, urls: Sequence[str], front: Front) -> None:
    """Runs a gate until Ctrl-C, for servers that run elsewhere and have the same token.

    The token is in the environment variable `front.key_env`. weights: the checkpoint folder, for the size of
    its vocabulary. Raises InputError, and ServingError if no server generates or the gate does not restart.
    """
    if not os.environ.get(front.key_env, ""):
        what = f"the variable {front.key_env or '--api-key-env'} is not set"
        raise InputError(what, expected="the token with which each of the servers was started")
    key, began = chosen_key(front.key_env, front.host), time.monotonic()
    check_free(front.token)
    with (
        hold(front.log),
        open_gate(weights, urls, key, front) as endpoint,
        private_file(front.token, key + "\n"),
    ):
        _tell(endpoint, front, len(urls), time.monotonic() - began)
        try:
            while endpoint.alive():
                time.sleep(CHECK_SECONDS)
        except KeyboardInterrupt:
            print("stopped", flush=True)
            return
    raise ServingError(f"the gate ended and cannot be started again; log: {front.log}")


@contextmanager
def open_gate(weights: Path, urls: Sequence[str], key: str, front: Front) -> Iterator[Endpoint]:
    """Runs a gate in front of the servers at `urls` during the block, and restarts it if it dies. key: token
    of the servers and of the gate. Raises InputError without addresses, and ServingError."""
    bases = [url.rstrip("/").removesuffix("/v1") for url in urls]
    if not bases or not all(base.startswith(("http://", "https://")) for base in bases):
        raise InputError("--behind", ", ".join(urls) or "nothing", "addresses such as http://host:30001")
    bypass(*(base.partition("://")[2].rpartition(":")[0].strip("[]") for base in bases))
    settings = GateSettings(
        host=front.host,
        port=front.port,
        token=key,
        engine=DEFAULT_ENGINE,
        engine_key=key,
        urls=bases,
        names=[front.name],
        context_length=front.settings["context_length"],
        vocabulary=vocabulary(weights, front.settings.get("base")),
        drain_seconds=DRAIN_SECONDS,
    )
    gate, failed, ended = GateProcess(settings, front.log), 0, threading.Event()

    def alive() -> bool:
        nonlocal failed
        while not gate.alive() and not ended.is_set():
            failed += 1
            if failed > STARTS:
                return False
            print(f"the gate has ended; starting it again; log: {front.log}", file=sys.stderr, flush=True)
            try:
                gate.start()
                failed = 0
            except ServingError as fault:
                print(f"{fault}", file=sys.stderr, flush=True)
        return True

    try:
        yield Endpoint(f"{gate.url}/v1", key, front.name, alive=alive)
    finally:
        ended.set()
        gate.stop()


def _tell(endpoint: Endpoint, front: Front, servers: int, seconds: float) -> None:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    what = f"{servers} servers of {front.name}" if servers > 1 else front.name
    print(f"{endpoint.url} serves {what}; its token is in {front.token}", flush=True)
    print(f"ready after {seconds:.0f} s; log: {front.log}", file=sys.stderr, flush=True)
