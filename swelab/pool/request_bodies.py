"""Bodies of requests to the pool's servers: JSON in memory, files on disk."""

import asyncio
import hashlib
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO

from msgspec import Struct
from starlette.requests import Request

from swelab.http.bodies import SMALL_BYTES, content_length, pieces
from swelab.http.front_door import FrontDoor
from swelab.http.refusal import Refused
from swelab.pool.budget import Budget, Grant
from swelab.pool.request_schemas import PoolRequest, read_request
from swelab.records import Record
from swelab.sandbox.remote_protocol import BYTES, REQUEST

JSON_BYTES = 4 << 20  # of requests with commands, patches or many names
_STEP = 256 << 10


async def read_json(request: Request, shape: type[Struct], most: int = SMALL_BYTES) -> PoolRequest:
    """The body, a JSON object of that shape. Raises Refused."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused("the body is not declared as application/json")
    door: FrontDoor = request.scope["door"]
    with door.bodies.room() as room:
        return read_request(await door.bodies.read(request, most, room), shape)


def sender(request: Request) -> str:
    """Whose token a request came with, and from which address: who shares a server's memory with others."""
    return f"{request.scope['token']} {request.client.host if request.client else ''}"


def read_header(request: Request, shape: type[Struct]) -> PoolRequest:
    """The fields in the header of a request whose body is bytes. Raises Refused."""
    if request.headers.get("content-type") != BYTES:
        raise Refused(f"the body is not declared as {BYTES}")
    values = request.headers.getlist(REQUEST)
    if len(values) != 1:
        raise Refused(f"not one header {REQUEST}")
    return read_request(values[0].encode("latin-1"), shape)


@asynccontextmanager
async def spool_body(
    request: Request, most: int, room: Budget, key: str
) -> AsyncIterator[tuple[IO[bytes], str, int]]:
    """(the body as a file at its start, its SHA-256, its bytes), as long as the block lasts.

    `room` counts its bytes for `key` as they come. Raises Refused, NotReached, OSError.
    """
    length, size, digest = content_length(request), 0, hashlib.sha256()
    async with room.hold(key, 0) as grant:
        with tempfile.SpooledTemporaryFile(1 << 20) as file:
            async for piece in pieces(request, most):
                size += len(piece)
                await _reach(grant, size, most if length is None else length)
                digest.update(piece)
                await asyncio.to_thread(file.write, piece)
            file.seek(0)
            yield file, digest.hexdigest(), size


async def _reach(grant: Grant, size: int, most: int) -> None:
    """Have so many bytes, and some of those that may follow. What is only announced takes nothing."""
    if size > grant.size:
        await grant.reach(max(size, min(most, size + _STEP)))


def fingerprint(record: Record, *more: str) -> str:
    """SHA-256 (hex) of a request, without the request's id."""
    text = json.dumps({**record, "request_id": None}, sort_keys=True)
    return hashlib.sha256("\0".join((text, *more)).encode()).hexdigest()
