"""Holds new connections until their first byte arrives, so that silent connections cost almost nothing.

The event loop needs far more time to set up a connection than to accept it. The lobby accepts connections at
once. In each round of the event loop, the lobby sets up a few connections that have sent a byte. The client
addresses take turns.
"""

import asyncio
import contextlib
import logging
import select
import socket
import ssl
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from swelab.http.connections import HEAD_SECONDS, Connections, network

_AT_ONCE = 64  # maximum number of connections accepted before the event loop does other work
_SET_UP = 8  # maximum number of connections set up in one round of the event loop
_LOOK_SECONDS = 1.0
_log = logging.getLogger(__name__)


class Lobby:
    """Accepts connections at a non-blocking listener. `set_up` starts the HTTP protocol on a connection."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        listener: socket.socket,
        registry: Connections,
        set_up: Callable[[socket.socket], Awaitable[Any]],
    ) -> None:
        self._loop, self._listener, self._registry, self._set_up = loop, listener, registry, set_up
        # descriptor -> (socket, address, time when it was accepted)
        self._silent: dict[int, tuple[socket.socket, str, float]] = {}
        self._poll = select.epoll()  # cheaper than one `add_reader` for each socket
        loop.add_reader(self._poll.fileno(), self._look_for_bytes)
        self._ready: dict[str, deque[socket.socket]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._later: asyncio.TimerHandle | None = None
        self._open = True
        self._listen()
        self._look()

    def _listen(self) -> None:
        if self._open:
            self._loop.add_reader(self._listener, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                client, peer = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no file descriptor or memory is free
                _log.error("no connection can be accepted: %s", error)
                self._loop.remove_reader(self._listener)
                self._loop.call_later(_LOOK_SECONDS, self._listen)
                return
            client.setblocking(False)
            self._registry.add(client, (str(peer[0]), int(peer[1])))
            self._silent[client.fileno()] = client, network(str(peer[0])), time.monotonic()
            self._poll.register(client.fileno(), select.EPOLLIN)

    def _look_for_bytes(self) -> None:
        for file, _ in self._poll.poll(0, _AT_ONCE):
            self._poll.unregister(file)
            client, address, _ = self._silent.pop(file)
            with contextlib.suppress(OSError):
                if client.recv(1, socket.MSG_PEEK):
                    if not self._ready:
                        self._loop.call_soon(self._by_turns)
                    self._ready.setdefault(address, deque()).append(client)
                    continue
            client.close()

    def _by_turns(self) -> None:
        """Sets up a few of the ready connections. Addresses take turns, with one connection each."""
        for _ in range(_SET_UP):
            if not self._ready:
                return
            address = next(iter(self._ready))
            own = self._ready.pop(address)
            task = self._loop.create_task(self._connect(own.popleft()))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            if own:
                self._ready[address] = own
        if self._ready:
            self._loop.call_soon(self._by_turns)

    async def _connect(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError, ssl.SSLError):
            await self._set_up(client)

    def _look(self) -> None:
        """Closes connections that have sent no byte within HEAD_SECONDS."""
        before = time.monotonic() - HEAD_SECONDS
        for file in [each for each, (_, _, since) in self._silent.items() if since < before]:
            self._silent.pop(file)[0].close()  # closing the socket also removes it from the epoll
        self._later = self._loop.call_later(_LOOK_SECONDS, self._look)

    def close(self) -> None:
        """Stops accepting, and closes all connections that are not set up."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._listener)
        self._listener.close()
        self._loop.remove_reader(self._poll.fileno())
        self._poll.close()
        silent = (client for client, _, _ in self._silent.values())
        for client in (*silent, *(each for own in self._ready.values() for each in own)):
            client.close()
        self._silent.clear()
        self._ready.clear()
        if self._later is not None:
            self._later.cancel()

    async def wait_closed(self) -> None:
        """See asyncio."""
