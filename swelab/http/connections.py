"""Limits the number of open connections of a server, and the duration and unread bytes of each.

The number is also limited for each address and each token. A connection is unauthenticated until a request on
it has a valid token. The server limits the number of unauthenticated connections, and closes the oldest of
them first. Connections with a token stay open.
"""

import contextlib
import ipaddress
import resource
import socket
import weakref
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0
WRITE_SECONDS = 60.0
_MOST = 8192
_OWN_FILES = 256
Peer = tuple[str, int]


class _Connection:
    def __init__(self, client: socket.socket, peer: Peer, registry: "Connections") -> None:
        self.peer, self.address, self.token = peer, network(peer[0]), ""
        self.socket = weakref.ref(client, lambda _: registry.forget(self))

    def is_closed(self) -> bool:
        own = self.socket()
        return own is None or own.fileno() < 0

    def shut_down(self) -> None:
        own = self.socket()
        with contextlib.suppress(OSError):
            if own is not None:
                own.shutdown(socket.SHUT_RDWR)


def network(address: str) -> str:
    """Returns an IPv4 address unchanged, or the /64 network of an IPv6 address.

    One machine may own a whole /64 network.
    """
    try:
        read = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ipaddress.ip_network((read, 64), strict=False)) if read.version == 6 else str(read)


class Connections:
    """The open connections of a server, at most `most`. One token may have at most three quarters of `most`.

    unauthenticated: maximum number of connections without a token, by default half of `most`. One address may
    have at most a quarter of `most` connections without a token.
    """

    def __init__(self, most: int = _MOST, unauthenticated: int = 0) -> None:
        self.most = min(most, _connection_capacity())
        self._most_unauthenticated = unauthenticated or self.most // 2
        self._all: dict[Peer, _Connection] = {}
        # maps addresses to unauthenticated connections
        self._unauthenticated: dict[str, dict[Peer, _Connection]] = {}
        self._unauthenticated_count = 0
        self._idle: dict[str, dict[Peer, _Connection]] = {}  # maps tokens to idle connections
        self._tokens: Counter[str] = Counter()
        self.closed_early = 0

    def add(self, client: socket.socket, peer: Peer) -> None:
        """Registers a new connection. If a limit is exceeded, closes one connection.

        If one address has too many unauthenticated connections, the oldest of these is closed. If there are
        too many in total, the oldest connection of the address with the most is closed.
        """
        new = _Connection(client, peer, self)
        self._all[peer] = new
        own = self._unauthenticated.setdefault(new.address, {})
        own[peer] = new
        self._unauthenticated_count += 1
        if len(own) > min(self.most // 4, self._most_unauthenticated):
            self._close(own)
        elif self._unauthenticated_count > self._most_unauthenticated:
            self._close(max(self._unauthenticated.values(), key=len))
        if len(self._all) > self.most:
            # If only the new connection is unauthenticated, close an idle connection of the token that has
            # the most idle connections.
            idle = max((each for each in self._idle.values() if each), key=len, default=None)
            fullest = max(self._unauthenticated.values(), key=len)
            self._close(fullest if self._unauthenticated_count > 1 or not idle else idle)

    def start_request(self, peer: Peer | None, token: str) -> bool:
        """Records that a request with this token begins.

        Returns False if the token has too many connections.
        """
        connection = self._all.get(peer) if peer else None
        if connection is None:
            return True  # in a test without sockets, or after the connection was closed
        if not connection.token:
            self._remove_unauthenticated(connection)
            connection.token = token
            self._tokens[token] += 1
        self._idle.get(connection.token, {}).pop(connection.peer, None)
        if self._tokens[token] > self.most * 3 // 4:
            idle = self._idle.get(token)
            if not idle:
                return False
            self._close(idle)
        return True

    def end_request(self, peer: Peer | None) -> None:
        """Records that the response has been sent, so that the connection is idle."""
        connection = self._all.get(peer) if peer else None
        if connection is not None and connection.token:
            self._idle.setdefault(connection.token, {})[connection.peer] = connection

    def _remove_unauthenticated(self, connection: _Connection) -> None:
        own = self._unauthenticated.get(connection.address, {})
        if own.pop(connection.peer, None) is not None:
            self._unauthenticated_count -= 1
        if not own:
            self._unauthenticated.pop(connection.address, None)

    def _close(self, some: dict[Peer, _Connection]) -> None:
        """Closes the oldest connection in `some`."""
        oldest = next(iter(some.values()))
        self.closed_early += 1
        self.forget(oldest)
        oldest.shut_down()

    def forget(self, connection: _Connection | None) -> None:
        """Removes a connection from all counts."""
        if connection is not None and self._all.get(connection.peer) is connection:
            del self._all[connection.peer]
            self._remove_unauthenticated(connection)
            if connection.token:
                self._idle.get(connection.token, {}).pop(connection.peer, None)
                self._tokens[connection.token] -= 1

    def end(self, peer: Peer | None) -> None:
        """Records that the connection from this address and port has ended."""
        self.forget(self._all.get(peer) if peer else None)

    def counts(self) -> dict[str, float]:
        """Returns the values for /metrics."""
        for connection in list(self._all.values()):
            # If a connection is closed before the TLS handshake, asyncio does not notify the protocol.
            if connection.is_closed():
                self.forget(connection)
        counts = {"connections": len(self._all), "connections_outside": self._unauthenticated_count}
        return {**counts, "connections_cut_total": self.closed_early}


def _connection_capacity() -> int:
    """Returns the maximum number of connections that this process can open.

    Increases the soft limit of open files as far as allowed. Each request may need a second connection, to a
    server behind this server. So half of the files stay free.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 2 * _MOST + _OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < most:
        soft = most if hard == resource.RLIM_INFINITY else min(hard, most)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return _MOST if soft == resource.RLIM_INFINITY else max(16, min(_MOST, (soft - _OWN_FILES) // 2))


class TimedProtocol(H11Protocol):
    """HTTP/1.1 with deadlines: a client must send a request's head and read the response in time."""

    _late: Any = None
    _unread: Any = None

    def connection_made(self, transport: Any) -> None:
        """See asyncio.Protocol."""
        super().connection_made(transport)
        client = transport.get_extra_info("socket")._sock  # the wrapper allows no weak reference
        self.config.loaded_app.connections.add(client, self.client)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwait()
        elif self._late is None and not self.transport.is_closing():
            self._wait()

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        super().pause_writing()
        self._unread = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._read()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._unwait()
        self._read()
        self.config.loaded_app.connections.end(self.client)
        super().connection_lost(exc)

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def _wait(self) -> None:
        self._late = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _unwait(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
