"""Keeps the beginning and the end of a byte stream of any length in bounded memory."""

import os
import select
import time

_PAUSE_SECONDS, _SMALL = 0.004, 1 << 14


class BoundedOutput:
    """Keeps the first and the last `limit` / 2 bytes of a stream.

    The bytes between are counted and dropped.
    """

    def __init__(self, limit: int) -> None:
        self._head_size = limit // 2
        self._tail_size = limit - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._last_read = 0.0
        self._at_once = 0  # number of small pieces that `read` may still read without a pause

    def read(self, descriptor: int) -> bytes:
        """Reads up to 64 KiB from a pipe, stores the bytes and returns them.

        Returns b"" at the end of the pipe. Raises OSError. Pauses if small pieces arrive in quick succession.
        Without a pause, a program that writes single lines would wake the reader for each line. That costs
        both processes CPU time. If a caller waits for an answer, the first pieces are read without a pause.
        """
        now = time.monotonic()
        chunk = os.read(descriptor, 1 << 16)
        self.add(chunk)
        if self._at_once:
            self._at_once -= 1
        elif 0 < len(chunk) < _SMALL and now - self._last_read < _PAUSE_SECONDS:
            select.select((), (), (), _PAUSE_SECONDS)  # time.sleep fails if the command has faked the clock
        self._last_read = time.monotonic()
        return chunk

    def add(self, chunk: bytes) -> None:
        """Adds the next bytes of the stream."""
        self._total += len(chunk)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        # We truncate only at twice the size. Otherwise each chunk would move all stored bytes.
        if len(self._tail) > 2 * self._tail_size:
            del self._tail[: len(self._tail) - self._tail_size]

    @property
    def dropped(self) -> int:
        """Number of bytes of the stream that `value` leaves out."""
        return max(0, self._total - self._head_size - self._tail_size)

    def value(self) -> bytes:
        """Returns the stored bytes. Dropped bytes are replaced by a line that states their number."""
        if not self.dropped:
            return bytes(self._head + self._tail)
        tail = self._tail[len(self._tail) - self._tail_size :]
        return bytes(self._head) + f"\n[... {self.dropped} bytes dropped ...]\n".encode() + bytes(tail)
