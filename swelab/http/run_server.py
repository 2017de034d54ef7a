"""Runs an HTTP server with time limits until a signal arrives."""

import argparse
import asyncio
import contextlib
import math
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from swelab.http.connections import HEAD_SECONDS, TimedProtocol
from swelab.http.front_door import FrontDoor
from swelab.http.sockets import address, listen
from swelab.records import InputError

_KEEP_SECONDS = 75


def positive(args: argparse.Namespace, **most: float) -> None:
    """Raises InputError for the first option that is not above 0 or exceeds its maximum.

    most: maps the name of each option to its maximum.
    """
    for name, limit in most.items():
        if not 0 < getattr(args, name) <= limit:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{getattr(args, name):g}", option, f"more than 0, at most {limit:g}")


class _Loop(asyncio.SelectorEventLoop):
    async def create_server(self, protocol: Any, *, sock: Any, ssl: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """See asyncio. Closes a connection that does not finish the TLS handshake in time."""
        secure: dict[str, Any] = {"ssl": ssl, "ssl_handshake_timeout": HEAD_SECONDS} if ssl else {}
        return await super().create_server(protocol, sock=sock, **secure, **options)


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
        self._on_ready = on_ready

    def run_at(self, listener: socket.socket) -> None:
        """Serves at a listening socket until a signal, or until `should_exit` is set."""
        with asyncio.Runner(loop_factory=_Loop) as runner:
            runner.run(self.serve(sockets=[listener]))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn. Calls `on_ready` when the server accepts requests."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()


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
