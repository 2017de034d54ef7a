"""Runs one of the two servers: its socket, its times, its end."""

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from swelab.records import InputError
from swelab.sandbox.remote_protocol import KEEPALIVE

HEAD_SECONDS = 10.0
_KEEP_SECONDS = 75
_CONNECTIONS = 4096


class Prompt(H11Protocol):
    """Closes a connection on which the head of a request does not come in time."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """See asyncio.Protocol."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwait()
        elif self._late is None and not self.transport.is_closing():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._unwait()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._late = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _unwait(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens (port 0: any). Raises InputError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cannot listen: {error}", f"{host} port {port}", "a free port of this machine"
        ) from None
    for option in KEEPALIVE:
        bound.setsockopt(*option)
    return bound


def address(bound: socket.socket, secure: bool) -> str:
    """The URL of a socket."""
    host, port = bound.getsockname()[:2]
    return f"http{'s' if secure else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def run(
    app: ASGIApp,
    bound: socket.socket,
    certificate: Path | None = None,
    key: Path | None = None,
    tell: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT. Raises InputError (certificate)."""
    config = uvicorn.Config(
        app,
        http=Prompt,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_SECONDS,
        timeout_graceful_shutdown=5,
        limit_concurrency=_CONNECTIONS,
        ssl_certfile=str(certificate) if certificate else None,
        ssl_keyfile=str(key) if key else None,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"certificate or key: {error}", certificate or "") from None
    tell()
    uvicorn.Server(config).run(sockets=[bound])
