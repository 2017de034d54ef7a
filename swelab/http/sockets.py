"""Opens listening sockets, and sets keepalive and buffers of connections."""

import socket

from swelab.records import InputError

_UNREAD_BYTES = 256 << 10  # send buffer of a connection; the kernel's default grows to megabytes
_UNREAD_MILLISECONDS = 60_000  # after this time the kernel drops a connection whose peer does not read
# Detects within a minute that the peer has vanished, even if both sides are silent.
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
    """Returns a listening TCP socket. Port 0 selects any free port. Raises InputError."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise InputError(
            f"cannot listen: {error}", f"{host} port {port}", "a free port of this machine"
        ) from None
    for option in _SERVER:
        listener.setsockopt(*option)
    # asyncio sets TCP_NODELAY only on sockets that are created with a protocol number.
    return socket.socket(listener.family, listener.type, socket.IPPROTO_TCP, fileno=listener.detach())


def address(listener: socket.socket, secure: bool = False) -> str:
    """Returns the URL of a listening socket. secure: whether the URL begins with https."""
    host, port = listener.getsockname()[:2]
    return f"http{'s' if secure else ''}://{f'[{host}]' if ':' in host else host}:{port}"
