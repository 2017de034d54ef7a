"""Bodies that come in: bounded in bytes and time, each alone and all in memory together.

Where there is no room for another body, the oldest of those that have not come whole makes way: clients send
a body within moments, so whoever has been at it for longest is slow or means no good.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from starlette.requests import Request

from swelab.http.pace import SLOWEST, Credit, Turns
from swelab.http.refusal import Refused

BODY_SECONDS = 30.0  # that a server waits for a body, and more as long as it comes fast enough
WHOLE_SECONDS = 900  # in which a body comes whole at the least speed that is fast enough
SMALL_BYTES = 64 << 10
READ_BYTES = 64 << 20
"""So much of a body that is too long is read: a client that still writes reads no answer."""


class Room:
    """Memory of one body; `size` is in bytes."""

    def __init__(self) -> None:
        self.size = 0


class Bodies:
    """The bodies in memory: those that are being read, and those of requests that are being answered.

    most: their bytes, together.
    """

    def __init__(self, most: int) -> None:
        self._most, self.used = most, 0
        self._reading: dict[asyncio.Timeout, Room] = {}

    @contextmanager
    def room(self) -> Iterator[Room]:
        """Memory for a body, taken as its pieces come and given back at the end of the block."""
        room = Room()
        try:
            yield room
        finally:
            self.used -= room.size

    def end_oldest(self, own: Room | None = None) -> bool:
        """End the reading of the body that was begun first, not that of `own`; False if there is none."""
        for limit, room in self._reading.items():
            if room is not own:
                del self._reading[limit]
                limit.reschedule(asyncio.get_running_loop().time())
                return True
        return False

    async def _take(self, room: Room, count: int) -> None:
        """Count bytes of a body. Raises Refused where no other body can make way."""
        while self.used + count > self._most:
            if not self.end_oldest(room):
                raise Refused("too many large requests at once; try again later", 503)
            for _ in range(4):  # its task ends, and gives its memory back
                await asyncio.sleep(0)
        room.size += count
        self.used += count

    async def read(self, request: Request, most: int, room: Room) -> bytes:
        """A request's body. Raises Refused (too long, too slow, no room), ClientDisconnect.

        If it is too long, the rest is still read, within READ_BYTES.
        """
        length, count, body = content_length(request) or 0, 0, bytearray()
        try:
            async with asyncio.timeout(None) as limit:
                self._reading[limit] = room
                try:
                    if length <= READ_BYTES:
                        async for piece in pieces(request, READ_BYTES):
                            count += len(piece)
                            if max(length, count) <= most:
                                await self._take(room, len(piece))
                                body += piece
                finally:
                    self._reading.pop(limit, None)
        except TimeoutError:
            raise Refused("the body made way for others that came whole; try again", 503) from None
        if max(length, count) > most:
            raise Refused(f"the body has {max(length, count)} bytes; at most {most} are taken", 413)
        return bytes(body)


def content_length(request: Request) -> int | None:
    """How many bytes a request says that its body has, None if it does not say. Raises Refused."""
    if "content-length" not in request.headers:
        return None if "transfer-encoding" in request.headers else 0
    try:
        return int(request.headers["content-length"])
    except ValueError:
        raise Refused("the length of the body is no number") from None


async def pieces(request: Request, most: int) -> AsyncIterator[bytes]:
    """The body piece by piece. Raises Refused when it is too long, dries up or comes too slowly."""
    length = content_length(request)
    if (length or 0) > most:
        raise Refused(f"the body has {length} bytes; at most {most} are taken", 413)
    stream, count, credit = request.stream(), 0, Credit(BODY_SECONDS, least_speed(length or 0))
    turns: Turns = request.scope["door"].turns
    while True:
        if count > SMALL_BYTES:
            await turns.take()
        try:
            piece = await credit.wait(anext(stream, None))
        except TimeoutError:
            raise Refused("the body did not come in time") from None
        if piece is None:
            return
        count += len(piece)
        credit.moved(len(piece), least_speed(length or count))
        if count > most:
            raise Refused(f"the body has more than {most} bytes", 413)
        yield piece


async def disconnect(request: Request) -> None:
    """Returns when the client goes away; for a request whose body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


def least_speed(size: int) -> int:
    """Bytes a second at which a body of this size must come: a large one takes room until it is whole."""
    return max(SLOWEST, size // WHOLE_SECONDS)
