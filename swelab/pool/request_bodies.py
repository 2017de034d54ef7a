"""Bodies of requests: their bytes, time, depth and values are bounded before anything is made of them."""

import asyncio
import hashlib
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO

from starlette.requests import Request

from swelab.pool.budget import SLOWEST, Budget, Credit, Grant, Turns
from swelab.pool.front_door import FrontDoor, TooBig
from swelab.pool.json_bounds import examined, without_null
from swelab.pool.request_schemas import PoolRequest
from swelab.records import Record
from swelab.sandbox.remote_protocol import BYTES, REQUEST, Refused

SMALL_BYTES = 64 << 10
JSON_BYTES = 4 << 20  # of requests with commands, patches or many names
BODY_SECONDS = 30.0  # that a server waits for a body, and more as long as it comes fast enough
WHOLE_SECONDS = 900  # in which a body comes whole at the least speed that is fast enough
_STEP = 256 << 10


async def read_json(request: Request, schema: Record, most: int = SMALL_BYTES) -> PoolRequest:
    """The body, a JSON object of that shape. Raises Refused, TooBig, NotReached (no memory for it now)."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused("the body is not declared as application/json")
    told = _told(request, most)
    size = most if told is None else told
    door: FrontDoor = request.scope["door"]
    if size <= SMALL_BYTES:
        return _parsed(b"".join([piece async for piece in pieces(request, most)]), schema, request.url.path)
    async with door.bodies.hold(sender(request), SMALL_BYTES) as grant:
        body = bytearray()
        async for piece in pieces(request, most):
            await _reach(grant, len(body) + len(piece), size)
            body += piece
        _accept(await door.scan.fault(bytes(body), schema), request.url.path)
        return PoolRequest.of(without_null(json.loads(body)))


def sender(request: Request) -> str:
    """Whose token a request came with, and from which address: who shares a server's memory with others."""
    return f"{request.scope['who']} {request.client.host if request.client else ''}"


def described(request: Request, schema: Record) -> PoolRequest:
    """The fields in the header of a request whose body is bytes. Raises Refused."""
    if request.headers.get("content-type") != BYTES:
        raise Refused(f"the body is not declared as {BYTES}")
    shown = request.headers.getlist(REQUEST)
    if len(shown) != 1:
        raise Refused(f"not one header {REQUEST}")
    return _parsed(shown[0].encode("latin-1"), schema, request.url.path)


@asynccontextmanager
async def spooled(
    request: Request, most: int, room: Budget, key: str
) -> AsyncIterator[tuple[IO[bytes], str, int]]:
    """(the body as a file at its start, its SHA-256, its bytes), as long as the block lasts.

    `room` counts its bytes for `key` as they come. Raises TooBig, Refused, NotReached, OSError.
    """
    told, size, seen = _told(request, most), 0, hashlib.sha256()
    async with room.hold(key, 0) as grant:
        with tempfile.SpooledTemporaryFile(1 << 20) as file:
            async for piece in pieces(request, most):
                size += len(piece)
                await _reach(grant, size, most if told is None else told)
                seen.update(piece)
                await asyncio.to_thread(file.write, piece)
            file.seek(0)
            yield file, seen.hexdigest(), size


async def _reach(grant: Grant, size: int, most: int) -> None:
    """Have so many bytes, and some of those that may follow. What is only announced takes nothing."""
    if size > grant.size:
        await grant.reach(max(size, min(most, size + _STEP)))


def _told(request: Request, most: int) -> int | None:
    """How long the body is, if that is said. Raises Refused, TooBig."""
    if "content-length" not in request.headers:
        return None if "transfer-encoding" in request.headers else 0
    try:
        told = int(request.headers["content-length"])
    except ValueError:
        raise Refused("the length of the body is no number") from None
    if told > most:
        raise TooBig(f"the body has {told} bytes; at most {most} are taken")
    return told


async def pieces(request: Request, most: int) -> AsyncIterator[bytes]:
    """The body piece by piece. Raises TooBig; Refused when it dries up or comes too slowly."""
    told = _told(request, most)
    stream, count, credit = request.stream(), 0, Credit(BODY_SECONDS, least_speed(told or 0))
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
        credit.moved(len(piece), least_speed(told or count))
        if count > most:
            raise TooBig(f"the body has more than {most} bytes")
        yield piece


def least_speed(size: int) -> int:
    """Bytes a second at which a body of this size must come: a large one holds its host's disk until it is
    whole."""
    return max(SLOWEST, size // WHOLE_SECONDS)


def _parsed(data: bytes, schema: Record, where: str) -> PoolRequest:
    found, fault = examined(data, schema)
    _accept(fault, where)
    return PoolRequest.of(found)


def _accept(fault: str, where: str) -> None:
    if fault:
        raise Refused(f"{where}: {fault}" if fault.startswith("field ") else fault)


def fingerprint(record: Record, *more: str) -> str:
    """SHA-256 (hex) of what was asked, without the request's id."""
    text = json.dumps({**record, "request_id": None}, sort_keys=True)
    return hashlib.sha256("\0".join((text, *more)).encode()).hexdigest()
