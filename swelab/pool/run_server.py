"""Runs one of the two servers: opens its socket, sets its time limits, ends it."""

import argparse
import asyncio
import contextlib
import ctypes
import gc
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from swelab.pool.connections import HEAD_SECONDS, Connections, Prompt
from swelab.pool.front_door import FrontDoor
from swelab.pool.lobby import Lobby
from swelab.records import InputError
from swelab.sandbox.remote_protocol import KEEPALIVE

_KEEP_SECONDS = 75
_UNREAD_BYTES = 256 << 10  # that the kernel takes for a client that does not read; it would take megabytes
_COLLECT_TICKS = 600  # of a tenth of a second; it took 130 ms beside rude clients
_MMAP_THRESHOLD = -3  # of mallopt(3)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens (port 0: any). Raises InputError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cannot listen: {error}", f"{host} port {port}", "a free port of this machine"
        ) from None
    for option in (*KEEPALIVE, (socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD_BYTES)):
        bound.setsockopt(*option)
    # With the protocol TCP named, asyncio makes the connections send small pieces at once.
    return socket.socket(bound.family, bound.type, socket.IPPROTO_TCP, fileno=bound.detach())


def address(bound: socket.socket, secure: bool) -> str:
    """The URL of a socket."""
    host, port = bound.getsockname()[:2]
    return f"http{'s' if secure else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def positive(args: argparse.Namespace, **most: float) -> None:
    """Raises InputError for the first of these options that is not above 0, or above the most it may be."""
    for name, limit in most.items():
        if not 0 < getattr(args, name) <= limit:
            option = f"--{name.replace('_', '-')}"
            raise InputError(f"{getattr(args, name):g}", option, f"more than 0, at most {limit:g}")


def _collect_seldom() -> None:
    """Let the collector of garbage look at everything every _COLLECT_TICKS alone: the loop waits for it.

    It passes over what is here already, for good.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 3, 1_000_000)


def _give_memory_back() -> None:
    """Have the C library return freed memory of large answers to the system, instead of keeping it."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 256 << 10)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, registry: Connections) -> None:
        super().__init__()
        self._registry = registry

    async def create_server(self, protocol: Any, *, sock: Any, ssl: Any = None, **options: Any) -> Any:  # type: ignore[override]
        """A server that sets up connections once something has come on them; see asyncio.

        Those that do not finish the TLS handshake in time are closed.
        """
        sock.setblocking(False)
        secure: dict[str, Any] = {"ssl": ssl, "ssl_handshake_timeout": HEAD_SECONDS} if ssl else {}
        return Lobby(
            self, sock, self._registry, lambda taken: self.connect_accepted_socket(protocol, taken, **secure)
        )


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, on_ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_ready = on_ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn; calls `on_ready` once it serves."""
        await super().startup(sockets)
        if self.started:
            self._on_ready()

    async def on_tick(self, counter: int) -> bool:
        """See uvicorn; it is called ten times a second."""
        if counter % _COLLECT_TICKS == 0:
            gc.collect()
        return await super().on_tick(counter)


def run(
    door: FrontDoor,
    bound: socket.socket,
    certificate: Path | None = None,
    key: Path | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT; `on_ready` is called when it serves. Raises InputError (certificate)."""
    config = uvicorn.Config(
        door,
        http=Prompt,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=_KEEP_SECONDS,
        timeout_graceful_shutdown=5,
        ssl_certfile=str(certificate) if certificate else None,
        ssl_keyfile=str(key) if key else None,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"certificate or key: {error}", certificate or "") from None
    _give_memory_back()
    _collect_seldom()
    with asyncio.Runner(loop_factory=lambda: _Loop(door.connections)) as runner:
        runner.run(_Server(config, on_ready).serve(sockets=[bound]))
