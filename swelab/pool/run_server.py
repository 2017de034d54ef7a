"""Runs one of the two servers: its socket, its times, its end."""

import argparse
import asyncio
import contextlib
import ctypes
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn

from swelab.pool.connections import HEAD_SECONDS, Gate, Prompt
from swelab.pool.front_door import FrontDoor
from swelab.records import InputError
from swelab.sandbox.remote_protocol import KEEPALIVE

_KEEP_SECONDS = 75
_MMAP_THRESHOLD = -3  # of mallopt(3)


def listen(host: str, port: int) -> Gate:
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
    # Named as TCP, its connections send small pieces at once: asyncio sees to that.
    return Gate(bound.family, bound.type, socket.IPPROTO_TCP, fileno=bound.detach())


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


def _give_memory_back() -> None:
    """Let big answers leave the process when they are freed; the C library would keep them for later."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, 256 << 10)


class _Loop(asyncio.SelectorEventLoop):
    async def create_server(self, *arguments: Any, **options: Any) -> Any:
        """As always; but who does not shake hands in time is cut off."""
        if options.get("ssl"):
            options["ssl_handshake_timeout"] = HEAD_SECONDS
        return await super().create_server(*arguments, **options)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, tell: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = tell

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As always, and says so once it serves."""
        await super().startup(sockets)
        if self.started:
            self._tell()


def run(
    door: FrontDoor,
    bound: Gate,
    certificate: Path | None = None,
    key: Path | None = None,
    tell: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT; `tell` is called when it serves. Raises InputError (certificate)."""
    bound.registry = door.connections
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
    with asyncio.Runner(loop_factory=_Loop) as runner:
        runner.run(_Server(config, tell).serve(sockets=[bound]))
