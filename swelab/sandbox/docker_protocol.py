"""Sends requests to the first process of a docker sandbox and reads the answers.

docker_init.sh describes the protocol.
"""

import os
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from swelab.sandbox.bounded_output import BoundedOutput
from swelab.sandbox.docker_engine import Wire
from swelab.sandbox.protocol import Limits

_HEADER = struct.Struct(">BxxxI")  # stream (1 stdout, 2 stderr), number of bytes that follow
_STDOUT = 1
_LIVE = 2  # value of INPUT in docker_init.sh
_MARK = "\x1e"  # first byte of a nonce; rare in output, so few pieces look like a nonce
_SAID_BYTES = 2000
_READ_BYTES = 1 << 18


class Disconnected(Exception):
    """The stream ended in the middle of an answer. The message is the container's last error output."""


class Overdue(Exception):
    """No answer arrived in time."""


@dataclass(frozen=True)
class RequestEnd:
    """The end of a request.

    code: exit code of the inner shell. limit: name of the limit that ended the request, or "".
    """

    code: int
    limit: str


class Talk:
    """Makes one request at a time over a connection, and keeps a bounded part of the output."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._buffer = bytearray()
        self._errors = BoundedOutput(_SAID_BYTES)
        self._poll = select.poll()
        self._poll.register(wire.socket, select.POLLIN)
        self._both = select.poll()
        self._both.register(wire.socket, select.POLLIN | select.POLLOUT)

    def ask(
        self,
        words: Sequence[bytes],
        limits: Limits,
        output: BoundedOutput,
        due: float,
        given: Iterable[bytes] | None = None,
    ) -> RequestEnd:
        """Runs the inner shell with `words`.

        Adds the shell's output to `output`. given: chunks for the shell's stdin. due: latest time for the
        answer, as time.monotonic() gives it. Raises Disconnected, Overdue.
        """
        nonce = self._request(words, limits, int(given is not None), due)
        chunks = [] if given is None else given
        sent = all(self._send(b"%d\n" % len(chunk) + chunk, nonce, due) for chunk in chunks if chunk)
        if sent and given is not None:
            self._send(b"0\n", nonce, due)
        return self._answer(nonce, output, due)

    def live(
        self,
        words: Sequence[bytes],
        limits: Limits,
        output: BoundedOutput,
        due: float,
        opened: Callable[[], None],
    ) -> RequestEnd:
        """Like `ask`, for a session. This must be the last request to the container.

        Calls `opened` after sending the request. Bytes that are sent over the connection after that become
        the shell's stdin. Raises Disconnected, Overdue.
        """
        nonce = self._request(words, limits, _LIVE, due)
        opened()
        return self._answer(nonce, output, due)

    def _request(self, words: Sequence[bytes], limits: Limits, given: int, due: float) -> bytes:
        """Sends a request without its input. Returns the nonce that will end the answer."""
        nonce = _MARK + secrets.token_hex(16)
        figures = [
            *(nonce, given, round(limits.wall_seconds * 100), limits.cpu_seconds * 100),
            *(limits.memory_bytes, limits.disk_bytes, len(words)),
        ]
        parts = [" ".join(map(str, figures)).encode() + b"\n"]
        for word in words:
            parts += [b"%d\n" % len(word), word]
        self._send(b"".join(parts), nonce.encode(), due)
        return nonce.encode()

    def _send(self, data: bytes, nonce: bytes, due: float) -> bool:
        """Sends `data`. Returns False if the answer arrives first, or if the connection breaks.

        If a command exceeds a limit, the answer arrives before all input was sent. Raises Overdue.
        """
        rest = memoryview(data)
        while rest:
            ready = self._both.poll(max(0.0, due - time.monotonic()) * 1000)
            if not ready:
                raise Overdue
            if ready[0][1] & ~select.POLLOUT and (not self._receive() or nonce in self._buffer):
                return False
            try:
                rest = rest[self._wire.socket.send(rest, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                continue
            except OSError:
                return False
        return True

    def _receive(self) -> bool:
        """Reads the next bytes of the container's output into the buffer.

        Returns False at the end of the output.
        """
        try:
            piece = os.read(self._wire.socket.fileno(), _READ_BYTES)
        except OSError:
            return False
        self._buffer += piece
        return bool(piece)

    def _answer(self, nonce: bytes, output: BoundedOutput, due: float) -> RequestEnd:
        buffer = bytearray()
        while True:
            buffer += self._read(due)
            at = buffer.find(nonce)
            if at < 0:
                mark = buffer.rfind(nonce[:1], max(0, len(buffer) - len(nonce)))
                sure = mark if mark >= 0 and nonce.startswith(buffer[mark:]) else len(buffer)
                output.add(bytes(buffer[:sure]))
                del buffer[:sure]
            elif buffer.endswith(b"\n"):
                output.add(bytes(buffer[:at]))
                code, limit = buffer[at + len(nonce) :].split()
                return RequestEnd(int(code), "" if limit == b"-" else limit.decode())

    def _read(self, due: float) -> bytes:
        """Returns the next piece of the container's stdout."""
        while True:
            for stream, data in self._frames():
                if stream == _STDOUT:
                    return data
                self._errors.add(data)
            left = due - time.monotonic()
            if left <= 0 or not self._poll.poll(left * 1000):
                raise Overdue
            if not self._receive():
                raise Disconnected(self._errors.value().decode(errors="replace").strip().replace("\n", "; "))

    def _frames(self) -> Iterable[tuple[int, bytes]]:
        while len(self._buffer) >= _HEADER.size:
            stream, size = _HEADER.unpack_from(self._buffer)
            end = _HEADER.size + size
            if len(self._buffer) < end:
                return
            data = bytes(self._buffer[_HEADER.size : end])
            del self._buffer[:end]
            yield stream, data
