"""The process of a gate: `python -m swelab.models.serving.gate_server SETTINGS`.

SETTINGS is a JSON file for our eyes only: the keys are in it. Standard input says which engines are up, a
JSON list a line; when it ends, so does the gate.
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
from swelab.models.serving.gate import MOST_REQUESTS, Gate, Served
from swelab.models.serving.request_shapes import Limits
from swelab.models.serving.workers import Workers

HEAD_SECONDS = 10.0
KEEP_SECONDS = 75
STRANGERS = 512
"""Connections that have not shown the token yet: of more, the oldest ones are closed."""
FILES = 1 << 16
UNREAD_MILLISECONDS = 120_000
"""For what is left of an answer when its connection is closed: the kernel waits no longer for its peer."""

Peer = tuple[str, int]


class Connections:
    """Open connections by their peers. Those that have shown no token are bounded in number, and in time."""

    def __init__(self) -> None:
        self._open: dict[Peer, asyncio.Transport] = {}
        self._strangers: OrderedDict[Peer, asyncio.TimerHandle] = OrderedDict()

    def came(self, transport: asyncio.Transport) -> None:
        """Takes in a new connection."""
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
    """HTTP/1.1 that says which connections there are."""

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
    workers.told(settings["up"])
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
        limit_concurrency=MOST_REQUESTS + STRANGERS,
    )
    server = uvicorn.Server(config)
    beside = [asyncio.ensure_future(gate.watch()), asyncio.ensure_future(_listen(workers, server))]
    try:
        await server.serve(sockets=[_bind(settings["host"], settings["port"])])
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.create_server((host, port), family=family, backlog=1024)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # asyncio sets it for sockets whose protocol is told, which is not so here: an answer would wait 40 ms.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_MILLISECONDS)
    return bound


async def _listen(workers: Workers, server: uvicorn.Server) -> None:
    """Takes in which engines are up; ends the server when nobody tells any more."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        workers.told(json.loads(line))
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
