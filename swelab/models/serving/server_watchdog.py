"""Keeps one engine running: checks regularly that it generates, and restarts it with the current weights."""

import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import httpx

from swelab.checks.probes import answers
from swelab.jobs.child_process import fault_line
from swelab.models import ServingError
from swelab.models.serving.engine import Weights, open_engine
from swelab.models.serving.server import Endpoint
from swelab.records import Fault

CHECK_SECONDS = 10.0
ANSWER_SECONDS = 30.0
MUTE_CHECKS = 3
RESTARTS = 5
STEADY_SECONDS = 600
"""Seconds of steady running after which earlier failures no longer count towards RESTARTS."""

Start = Callable[[int | None, Callable[[], bool]], AbstractContextManager[Endpoint]]
"""A function that starts a server. Arguments: the port (None for any port), and a function that returns
whether to stop waiting."""


class Server(threading.Thread):
    """A thread that keeps one server running.

    endpoint: None while the server is down. fault: set when the server will not be restarted again. weights:
    the weights that replaced the initial weights, or None before the first replacement.
    """

    def __init__(self, name: str, start: Start, log: Path, changed: threading.Condition):
        super().__init__(name=name, daemon=True)
        self.log = log
        self.endpoint: Endpoint | None = None
        self.fault: BaseException | None = None
        self.weights: Weights | None = None
        self.starts = 0
        self.on_change: Callable[[], None] = lambda: None
        """A function that is called after every change of `endpoint`, before any other use of the server."""
        self._start_server, self._changed, self._ending = start, changed, threading.Event()

    def run(self) -> None:
        """Runs until `end`, until the first start fails, or until RESTARTS restarts in a row have failed."""
        port, failures = None, 0
        while not self._ending.is_set():
            began = time.monotonic()
            try:
                with self._start_server(port, self._ending.is_set) as endpoint:
                    port = httpx.URL(endpoint.url).port
                    self.starts += 1
                    self._open(endpoint)
                    try:
                        watch(endpoint, self.log, self._ending)
                    finally:  # before the stop, because stopping a hanging server takes long
                        self._set_state(None, None)
            except Exception as fault:
                if self._ending.is_set():
                    return
                failures = 1 if time.monotonic() - began > STEADY_SECONDS else failures + 1
                lasting = not self.starts or failures > RESTARTS or not isinstance(fault, Fault)
                self._set_state(None, fault if lasting else None)
                if lasting:
                    return
                former = self._keep_log()
                print(f"{self.name}: {fault}; starting it again; log: {former}", file=sys.stderr, flush=True)
                self._ending.wait(2 ** (failures - 1))

    def _open(self, endpoint: Endpoint) -> None:
        """Sets `endpoint` as soon as the server serves the current weights, which may change meanwhile."""
        served = None
        while True:
            with self._changed:
                weights = self.weights
                if weights is served:
                    self._set_state(endpoint, None)
                    return
            assert weights is not None
            replace(endpoint, weights)
            served = weights

    def _keep_log(self) -> Path:
        """Renames the log of a server that died, so that the next server does not overwrite it. Returns the
        new path."""
        former = self.log.with_suffix(f".{self.starts}{self.log.suffix}")
        with suppress(OSError):
            self.log.replace(former)
        return former

    def _set_state(self, endpoint: Endpoint | None, fault: BaseException | None) -> None:
        with self._changed:
            self.endpoint, self.fault = endpoint, fault
            self.on_change()
            self._changed.notify_all()

    def up(self) -> bool:
        """Returns whether the server runs."""
        endpoint = self.endpoint
        return bool(endpoint and endpoint.alive())

    def end(self) -> None:
        """Asks the server to finish its requests and stop. `join` waits until it has stopped."""
        self._ending.set()


def replace(endpoint: Endpoint, weights: Weights, in_turns: bool = False) -> None:
    """Makes one server serve new weights; see `Engine.replace_weights`. Raises ServingError."""
    address = endpoint.url.removesuffix("/v1")
    open_engine(endpoint.engine).replace_weights(address, endpoint.admin_key, weights, in_turns)


def watch(endpoint: Endpoint, log: Path, ending: threading.Event) -> None:
    """Checks a server until `ending` is set. Raises ServingError if the server has died or generates no
    tokens."""
    mute, due = 0, time.monotonic() + CHECK_SECONDS
    while not ending.wait(min(1.0, CHECK_SECONDS)):
        if not endpoint.alive():
            reason = f": {fault_line(log)}" if log.is_file() else ""
            raise ServingError(f"the model server has ended{reason}")
        if time.monotonic() >= due:
            mute = 0 if generates(endpoint) else mute + 1
            if mute >= MUTE_CHECKS:
                raise ServingError(f"the model server generated no token in {mute} checks in a row")
            due = time.monotonic() + CHECK_SECONDS


def generates(endpoint: Endpoint) -> bool:
    """Returns whether a server generates tokens. If no client sends requests, the check requests one
    token."""
    path = open_engine(endpoint.engine).generates
    return answers(endpoint.url.removesuffix("/v1"), path, endpoint.api_key, ANSWER_SECONDS)
