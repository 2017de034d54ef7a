"""Keeps the two ends of a stream of any length in bounded memory."""


class BoundedOutput:
    """Head and tail halves of `limit` bytes; the middle is counted and forgotten."""

    def __init__(self, limit: int) -> None:
        self._head_size = limit // 2
        self._tail_size = limit - self._head_size
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0

    def add(self, chunk: bytes) -> None:
        """Take the next bytes of the stream."""
        self._total += len(chunk)
        room = self._head_size - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        # Trimmed at twice the size, so that each byte is moved once and not at every chunk.
        if len(self._tail) > 2 * self._tail_size:
            del self._tail[: len(self._tail) - self._tail_size]

    @property
    def dropped(self) -> int:
        """Bytes of the stream that `value` does not show."""
        return max(0, self._total - self._head_size - self._tail_size)

    def value(self) -> bytes:
        """The stream; where bytes were dropped, a line of its own says how many."""
        if not self.dropped:
            return bytes(self._head + self._tail)
        tail = self._tail[len(self._tail) - self._tail_size :]
        return bytes(self._head) + f"\n[... {self.dropped} bytes dropped ...]\n".encode() + bytes(tail)
