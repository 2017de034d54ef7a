"""Sockets of servers and clients: how they listen, and when a silent peer counts as gone."""

import socket

from swelab.records import InputError

_UNREAD_BYTES = 256 << 10  # that the kernel takes for a client that does not read; it would take megabytes
_UNREAD_MILLISECONDS = 60_000  # for which the kernel keeps the rest of an answer that nobody reads
# A peer that went away without a word is noticed after a minute, also while we only wait.
KEEPALIVE = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)
_SERVER = (
    *KEEPALIVE,
    (socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD_BYTES),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNREAD_MILLISECONDS),
)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens (port 0: any). Raises InputError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cannot listen: {error}", f"{host} port {port}", "a free port of this machine"
        ) from None
    for option in _SERVER:
        listener.setsockopt(*option)
    # With the protocol TCP named, asyncio makes the connections send small pieces at once.
    return socket.socket(listener.family, listener.type, socket.IPPROTO_TCP, fileno=listener.detach())


def address(listener: socket.socket, secure: bool = False) -> str:
    """The URL of a socket."""
    host, port = listener.getsockname()[:2]
    return f"http{'s' if secure else ''}://{f'[{host}]' if ':' in host else host}:{port}"
