"""Bodies that come in at the gate: bounded in bytes and time, each alone and all together.

Where there is no room for another body, the oldest of those that have not come whole makes way: clients send
a body within moments, so whoever has been at it for longest is slow or means no good.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.types import Receive, Scope

from swelab.models.serving.request_shapes import Refused

SILENCE_SECONDS = 60.0
"""Longest wait for the next piece of a body, and for a client to take a piece of its answer."""
BODY_SECONDS = 300.0
READ_BYTES = 64 << 20
HELD_BYTES, HELD_BODIES = 256 << 20, 4
"""Bytes of all bodies that are in memory at a time; there is always room for HELD_BODIES of the longest."""


class Cut(Exception):
    """A client that went away, or an answer that broke off after its beginning was sent on."""


class Room:
    """Memory of one body; `size` is in bytes."""

    def __init__(self) -> None:
        self.size = 0


class Bodies:
    """The bodies in memory: those that are being read, and those of requests that are being answered."""

    def __init__(self, longest: int) -> None:
        self._longest, self._most = longest, max(HELD_BYTES, HELD_BODIES * longest)
        self._held = 0
        self._reading: dict[asyncio.Timeout, Room] = {}

    @contextmanager
    def room(self) -> Iterator[Room]:
        """Memory for a body, taken as its pieces come and given back at the end of the block."""
        room = Room()
        try:
            yield room
        finally:
            self._held -= room.size

    def end_oldest(self, own: Room | None = None) -> bool:
        """End the reading of the body that was begun first, not that of `own`; False if there is none."""
        for limit, room in self._reading.items():
            if room is not own:
                del self._reading[limit]
                limit.reschedule(asyncio.get_running_loop().time())
                return True
        return False

    def _take(self, room: Room, count: int) -> bool:
        if self._held + count > self._most:
            return False
        room.size += count
        self._held += count
        return True

    async def _taken(self, room: Room, count: int) -> None:
        """Raises Refused where no other body can make way."""
        while not self._take(room, count):
            if not self.end_oldest(room):
                raise Refused("too many large requests at once; try again later", 503)
            for _ in range(4):  # its task ends, and gives its memory back
                await asyncio.sleep(0)

    async def read(self, scope: Scope, receive: Receive, room: Room) -> bytes:
        """A request's body. Raises Refused, Cut, TimeoutError.

        If it is too long, the rest is still read, within bounds: a client that writes reads no answer.
        """
        announced, count, body = _length(scope), 0, bytearray()
        more = announced <= READ_BYTES
        async with asyncio.timeout(BODY_SECONDS) as limit:
            self._reading[limit] = room
            try:
                while more and count <= READ_BYTES:
                    async with asyncio.timeout(SILENCE_SECONDS):
                        message = await receive()
                    if message["type"] != "http.request":
                        raise Cut
                    piece, more = message.get("body", b""), message.get("more_body", False)
                    count += len(piece)
                    if max(announced, count) <= self._longest:
                        await self._taken(room, len(piece))
                        body += piece
            finally:
                self._reading.pop(limit, None)
        if max(announced, count) > self._longest:
            told = f"a body of over {self._longest} bytes: longer than the model's maximum context length"
            raise Refused(told, 413)
        return bytes(body)


def _length(scope: Scope) -> int:
    """The length that a request announces, 0 without one."""
    found = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
    return int(found[0]) if found and found[0].isdigit() else 0
