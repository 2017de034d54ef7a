"""The connections of a server: bounded by address and by token, in time, and in unread bytes.

A connection without a token is an outsider. When there are too many outsiders, the oldest of them are closed;
a connection that has shown a token keeps its place.
"""

import contextlib
import ipaddress
import resource
import socket
import time
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
    def __init__(self, taken: socket.socket, peer: Peer, registry: "Connections") -> None:
        self.peer, self.address, self.token, self.busy = peer, network(peer[0]), "", False
        self.since = time.monotonic()
        self.socket = weakref.ref(taken, lambda _: registry.gone(self))

    def is_closed(self) -> bool:
        taken = self.socket()
        return taken is None or taken.fileno() < 0

    def cut(self) -> None:
        taken = self.socket()
        with contextlib.suppress(OSError):
            if taken is not None:
                taken.shutdown(socket.SHUT_RDWR)


def network(address: str) -> str:
    """An IPv4 address as it is; of an IPv6 address the network of 64 bits, which one machine may own."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    return str(ipaddress.ip_network((found, 64), strict=False)) if found.version == 6 else str(found)


class Connections:
    """The open connections: at most `most`, half of them outsiders, a quarter outsiders of one address."""

    def __init__(self, most: int = 0) -> None:
        self.most = most or _room_for_files()
        self._all: dict[Peer, _Connection] = {}
        self._outside: dict[str, dict[Peer, _Connection]] = {}
        self._outsiders = 0
        self._idle: dict[str, dict[Peer, _Connection]] = {}
        self._tokens: Counter[str] = Counter()
        self.cut = 0

    def accepted(self, taken: socket.socket, peer: Peer) -> None:
        """Count a new connection. Where there are too many, the oldest of its kind is cut off."""
        made = _Connection(taken, peer, self)
        self._all[peer] = made
        own = self._outside.setdefault(made.address, {})
        own[peer] = made
        self._outsiders += 1
        if len(own) > self.most // 4:
            self._cut(next(iter(own.values())))
        elif self._outsiders > self.most // 2:
            self._cut(next(iter(max(self._outside.values(), key=len).values())))
        if len(self._all) > self.most:
            self._make_room()

    def _make_room(self) -> None:
        """Close the oldest outsider; or an idle connection, if only the newest is one; else the newest."""
        full = max((each for each in self._idle.values() if each), key=len, default=None)
        outside = max(self._outside.values(), key=len)
        self._cut(next(iter((outside if self._outsiders > 1 or not full else full).values())))

    def began(self, peer: Peer | None, token: str) -> bool:
        """A request with that token begins on a connection; False: the token has too many."""
        found = self._all.get(peer) if peer else None
        if found is None:
            return True  # unknown: of a test, or closed meanwhile
        if not found.token:
            self._leave_outside(found)
            found.token = token
            self._tokens[token] += 1
        self._idle.get(found.token, {}).pop(found.peer, None)
        found.busy = True
        if self._tokens[token] > self.most * 3 // 4:
            idle = self._idle.get(token)
            if not idle:
                return False
            self._cut(next(iter(idle.values())))
        return True

    def ended(self, peer: Peer | None) -> None:
        """Its answer has been sent."""
        found = self._all.get(peer) if peer else None
        if found is not None and found.token:
            found.busy = False
            self._idle.setdefault(found.token, {})[found.peer] = found

    def _leave_outside(self, one: _Connection) -> None:
        own = self._outside.get(one.address, {})
        if own.pop(one.peer, None) is not None:
            self._outsiders -= 1
        if not own:
            self._outside.pop(one.address, None)

    def _cut(self, one: _Connection) -> None:
        self.cut += 1
        self.gone(one)
        one.cut()

    def gone(self, one: _Connection) -> None:
        """Forget a connection."""
        if self._all.get(one.peer) is one:
            del self._all[one.peer]
            self._leave_outside(one)
            if one.token:
                self._idle.get(one.token, {}).pop(one.peer, None)
                self._tokens[one.token] -= 1

    def left(self, peer: Peer | None) -> None:
        """A connection was closed."""
        if peer in self._all:
            self.gone(self._all[peer])

    def counts(self) -> dict[str, float]:
        """Values for /metrics."""
        for one in list(self._all.values()):
            if one.is_closed():  # before its keys were exchanged: no protocol is notified of that
                self.gone(one)
        counts = {"connections": len(self._all), "connections_outside": self._outsiders}
        return {**counts, "connections_cut_total": self.cut}


def _room_for_files() -> int:
    """How many connections this process can have open; raises its limit of open files as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST + _OWN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return _MOST if soft == resource.RLIM_INFINITY else max(16, min(_MOST, soft - _OWN_FILES))


class Prompt(H11Protocol):
    """Closes connections that do not send the head of a request in time, or do not read their answer."""

    _late: Any = None
    _unread: Any = None

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
        self.config.loaded_app.connections.left(self.client)
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
