"""The process of a gate: `python -m swelab.models.serving.gate_server SETTINGS`.

SETTINGS is a JSON file that only this user can read: it holds the keys. Each line of standard input is a JSON
list that says which engines are up; when standard input ends, so does the gate.
"""

import asyncio
import json
import os
import resource
import socket
import sys
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from swelab.models.serving.engine import open_engine
from swelab.models.serving.gate import Gate, Served
from swelab.models.serving.request_shapes import Limits
from swelab.models.serving.workers import Workers

HEAD_SECONDS = 10.0
KEEP_SECONDS = 75
STRANGERS = 512
"""Most connections that have not shown the token yet; of more, the oldest ones are closed."""
IDLE = 4096
"""Most connections that have shown the token and wait for a request; of more, the oldest ones are closed."""
FILES = 1 << 16
UNREAD_MILLISECONDS = 120_000
"""How long the kernel keeps the rest of an answer for a peer that does not read it."""

Peer = tuple[str, int]


class Connections:
    """Open connections by their peers: those without a token are bounded, in time too, and idle ones."""

    def __init__(self) -> None:
        self._open: dict[Peer, asyncio.Transport] = {}
        self._idle: dict[Peer, None] = {}
        self._strangers: OrderedDict[Peer, asyncio.TimerHandle] = OrderedDict()

    def came(self, transport: asyncio.Transport) -> None:
        """Adds a new connection."""
        peer = transport.get_extra_info("peername")[:2]
        self._open[peer] = transport
        self._strangers[peer] = asyncio.get_running_loop().call_later(HEAD_SECONDS, transport.abort)
        while len(self._strangers) > STRANGERS:
            oldest, due = self._strangers.popitem(last=False)
            due.cancel()
            self.cut(oldest)

    def known(self, peer: Peer | None) -> None:
        """A connection has shown the token."""
        if peer and (due := self._strangers.pop(peer, None)):
            due.cancel()
        if peer:
            self._idle.pop(peer, None)

    def rests(self, peer: Peer | None) -> None:
        """A request of a connection has ended."""
        if peer in self._open and peer not in self._strangers:
            self._idle[peer] = None
        while len(self._idle) > IDLE:
            oldest = next(iter(self._idle))
            del self._idle[oldest]
            self.cut(oldest)

    def cut(self, peer: Peer | None) -> None:
        """Ends a connection without waiting for what its peer does not take."""
        if peer and (transport := self._open.get(peer)):
            transport.abort()

    def gone(self, peer: Peer | None) -> None:
        """A connection has ended."""
        self.known(peer)
        if peer:
            self._open.pop(peer, None)


def protocol(connections: Connections) -> type[H11Protocol]:
    """HTTP/1.1 that registers its connections in `connections`."""

    class Counted(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            """See asyncio.Protocol."""
            super().connection_made(transport)
            connections.came(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            """See asyncio.Protocol."""
            connections.gone(self.client)
            super().connection_lost(exc)

    return Counted


async def run(settings: dict[str, Any]) -> None:
    """Serves until it is interrupted or standard input ends. Raises OSError: the port is taken."""
    engine = open_engine(settings["engine"])
    workers = Workers(settings["urls"], engine.generates, settings["engine_key"])
    workers.set_up(settings["up"])
    connections = Connections()
    limits = Limits(settings["context_length"], settings["vocabulary"])
    served = Served(settings["names"], limits, engine.shapes)
    gate = Gate(served, workers, settings["token"], settings["engine_key"], connections)
    config = uvicorn.Config(
        gate,
        http=protocol(connections),
        ws="none",
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_SECONDS,
        timeout_graceful_shutdown=settings["drain_seconds"],
    )
    server = uvicorn.Server(config)
    tasks = [asyncio.ensure_future(gate.watch()), asyncio.ensure_future(_listen(workers, server))]
    try:
        await server.serve(sockets=[_bind(settings["host"], settings["port"])])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.create_server((host, port), family=family, backlog=1024)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # asyncio sets this only for sockets that name their protocol. Without it an answer would wait 40 ms.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MILLISECONDS)
    return bound


async def _listen(workers: Workers, server: uvicorn.Server) -> None:
    """Reads from standard input which engines are up; ends the server when that is closed."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        workers.set_up(json.loads(line))
    server.should_exit = True


def main() -> None:
    """The command line. A fault is one line."""
    settings = json.loads(Path(sys.argv[1]).read_bytes())
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = FILES if most == resource.RLIM_INFINITY else min(FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    try:
        with suppress(KeyboardInterrupt):
            asyncio.run(run(settings))
    except OSError as error:
        print(f"OSError: {error}", file=sys.stderr, flush=True)
        os._exit(1)


if __name__ == "__main__":
    main()
