"""Reads request bodies within limits of size and time, for each body and for all bodies in memory.

When the memory for bodies is full, the server rejects the unfinished body that started first. An honest
client sends its body within a short time. So the oldest unfinished body comes from a slow or hostile client.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from starlette.requests import Request

from swelab.http.pace import SLOWEST, Credit, Turns
from swelab.http.refusal import Refused

BODY_SECONDS = 30.0  # seconds for which a body may stall; see pace.Credit
WHOLE_SECONDS = 900  # seconds that a large body takes at the lowest accepted speed
SMALL_BYTES = 64 << 10
READ_BYTES = 64 << 20
"""Maximum number of bytes that the server reads of a body that is too long.

A client reads the response only after it has written the body.
"""


class BodyMemory:
    """The memory that one body occupies. size: in bytes."""

    def __init__(self) -> None:
        self.size = 0


class Bodies:
    """The request bodies in memory: unfinished bodies, and the bodies of running requests.

    most: maximum bytes of all bodies together.
    """

    def __init__(self, most: int) -> None:
        self._most, self.used = most, 0
        self._reading: dict[asyncio.Timeout, BodyMemory] = {}

    @contextmanager
    def memory(self) -> Iterator[BodyMemory]:
        """Yields the memory of one body.

        `size` grows as pieces arrive, and the bytes are released after the block.
        """
        memory = BodyMemory()
        try:
            yield memory
        finally:
            self.used -= memory.size

    def end_oldest(self, own: BodyMemory | None = None) -> bool:
        """Stops reading the oldest unfinished body other than `own`.

        Returns False if there is no such body.
        """
        for limit, memory in self._reading.items():
            if memory is not own:
                del self._reading[limit]
                limit.reschedule(asyncio.get_running_loop().time())
                return True
        return False

    async def _take(self, memory: BodyMemory, count: int) -> None:
        """Reserves bytes for a body. Raises Refused (503) if complete bodies fill the memory."""
        while self.used + count > self._most:
            if not self.end_oldest(memory):
                raise Refused("too many large requests at once; try again later", 503)
            for _ in range(4):  # lets the rejected body's task end and release its memory
                await asyncio.sleep(0)
        memory.size += count
        self.used += count

    async def read(self, request: Request, most: int, memory: BodyMemory) -> bytes:
        """Returns the whole body of a request.

        most: maximum size in bytes. The rest of a larger body is read and dropped, up to READ_BYTES. Raises
        Refused (too long, too slow, memory full), ClientDisconnect.
        """
        length, count, body = content_length(request) or 0, 0, bytearray()
        try:
            async with asyncio.timeout(None) as limit:
                self._reading[limit] = memory
                try:
                    if length <= READ_BYTES:
                        async for piece in pieces(request, READ_BYTES):
                            count += len(piece)
                            if max(length, count) <= most:
                                await self._take(memory, len(piece))
                                body += piece
                finally:
                    self._reading.pop(limit, None)
        except TimeoutError:
            raise Refused("memory is full and this was the oldest unfinished body; try again", 503) from None
        if max(length, count) > most:
            raise Refused(f"the body has {max(length, count)} bytes; at most {most} are taken", 413)
        return bytes(body)


def content_length(request: Request) -> int | None:
    """Returns the Content-Length of a request in bytes, or None if the body is chunked.

    Raises Refused if the header is not a number.
    """
    if "content-length" not in request.headers:
        return None if "transfer-encoding" in request.headers else 0
    try:
        return int(request.headers["content-length"])
    except ValueError:
        raise Refused("Content-Length is not a number") from None


async def pieces(request: Request, most: int) -> AsyncIterator[bytes]:
    """Yields the body piece by piece. Raises Refused if it is too long, stalls or arrives too slowly."""
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
            raise Refused("the body did not arrive in time") from None
        if piece is None:
            return
        count += len(piece)
        credit.add_bytes(len(piece), least_speed(length or count))
        if count > most:
            raise Refused(f"the body has more than {most} bytes", 413)
        yield piece


async def disconnect(request: Request) -> None:
    """Waits until the client disconnects. Must be called only after the body has been read."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


def least_speed(size: int) -> int:
    """Returns the lowest accepted speed for a body of `size` bytes, in bytes per second.

    Large bodies must arrive faster, since they occupy memory until they are complete.
    """
    return max(SLOWEST, size // WHOLE_SECONDS)
