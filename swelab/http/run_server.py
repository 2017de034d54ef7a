"""Runs an HTTP server with time limits until a signal arrives."""

import argparse
import asyncio
import contextlib
import ctypes
import gc
import math
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from swelab.http.connections import HEAD_SECONDS, Connections, TimedProtocol
from swelab.http.front_door import FrontDoor
from swelab.http.lobby import Lobby
from swelab.http.sockets import address, listen
from swelab.records import InputError

_KEEP_SECONDS = 75
_COLLECT_TICKS = 600  # ticks of 0.1 s each; with hostile clients, a full collection took 130 ms
_MMAP_THRESHOLD = -3  # of mallopt(3)


def positive(args: argparse.Namespace, **most: float) -> None:
    """Raises InputError for the first option that is not above 0 or exceeds its maximum.

    most: maps the name of each option to its maximum.
    """
    for name, limit in most.items():
        if not 0 < getattr(args, name) <= limit:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{getattr(args, name):g}", option, f"more than 0, at most {limit:g}")


def _collect_seldom() -> None:
    """Makes full garbage collections rare, since each collection stops the event loop.

    The server runs a full collection every _COLLECT_TICKS. Objects that exist now are never collected.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 3, 1_000_000)


def _give_memory_back() -> None:
    """Makes the C library return the freed memory of large responses to the system."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 256 << 10)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, registry: Connections) -> None:
        super().__init__()
        self._registry = registry

    async def create_server(self, protocol: Any, *, sock: Any, ssl: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """See asyncio. The server sets up a connection when its first byte has arrived.

        The server closes connections that do not finish the TLS handshake in time.
        """
        sock.setblocking(False)
        secure: dict[str, Any] = {"ssl": ssl, "ssl_handshake_timeout": HEAD_SECONDS} if ssl else {}
        return Lobby(
            self, sock, self._registry, lambda sock: self.connect_accepted_socket(protocol, sock, **secure)
        )


class _Server(uvicorn.Server):
    def __init__(self, door: FrontDoor, on_ready: Callable[[], None], **settings: Any) -> None:
        config = uvicorn.Config(
            door,
            http=TimedProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_KEEP_SECONDS,
            **settings,
        )
        config.load()
        super().__init__(config)
        self._door, self._on_ready = door, on_ready

    def run_at(self, listener: socket.socket) -> None:
        """Serves at a listening socket until a signal, or until `should_exit` is set."""
        with asyncio.Runner(loop_factory=lambda: _Loop(self._door.connections)) as runner:
            runner.run(self.serve(sockets=[listener]))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn. Calls `on_ready` when the server accepts requests."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        """See uvicorn, which calls this method ten times a second."""
        if counter % _COLLECT_TICKS == 0:
            gc.collect()
        return await super().on_tick(counter)


def run(
    door: FrontDoor,
    listener: socket.socket,
    certificate: Path | None = None,
    key: Path | None = None,
    on_ready: Callable[[], None] = lambda: None,
    drain_seconds: float = 5,
) -> None:
    """Serves until SIGTERM or SIGINT. Then running requests have at most `drain_seconds` to finish.

    `on_ready` is called in the event loop when the server accepts requests. Raises InputError if the
    certificate or the key is invalid.
    """
    files = {"ssl_certfile": certificate, "ssl_keyfile": key}
    secure = {name: str(path) for name, path in files.items() if path}
    try:
        server = _Server(door, on_ready, timeout_graceful_shutdown=math.ceil(drain_seconds), **secure)
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"certificate or key: {error}", certificate or "") from None
    _give_memory_back()
    _collect_seldom()
    server.run_at(listener)


@contextlib.contextmanager
def in_background(door: FrontDoor) -> Iterator[str]:
    """Serves on the loopback interface in a thread while the block runs. Yields the URL.

    The end of the block waits for running requests.
    """
    ready = threading.Event()
    listener, server = listen("127.0.0.1", 0), _Server(door, ready.set)

    def serve() -> None:
        try:
            server.run_at(listener)
        finally:
            ready.set()

    thread = threading.Thread(target=serve)
    thread.start()
    ready.wait()
    try:
        yield address(listener)
    finally:
        server.should_exit = True
        thread.join()
