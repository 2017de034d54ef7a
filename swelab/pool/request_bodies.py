"""Reads the request bodies of the pool's servers: JSON into memory, files onto disk."""

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

JSON_BYTES = 4 << 20  # maximum body size for requests with commands, patches or many names
_STEP = 256 << 10


async def read_json(request: Request, shape: type[Struct], most: int = SMALL_BYTES) -> PoolRequest:
    """Returns the JSON object in the request body, checked against `shape`. Raises Refused.

    most: maximum body size in bytes.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused("the body is not declared as application/json")
    door: FrontDoor = request.scope["door"]
    with door.bodies.memory() as memory:
        return read_request(await door.bodies.read(request, most, memory), shape)


def sender(request: Request) -> str:
    """Returns the key of a request in a Budget: the hash of the client's token, and the client's address."""
    return f"{request.scope['token']} {request.client.host if request.client else ''}"


def read_header(request: Request, shape: type[Struct]) -> PoolRequest:
    """Returns the fields in the header of a request whose body is bytes. Raises Refused."""
    if request.headers.get("content-type") != BYTES:
        raise Refused(f"the body is not declared as {BYTES}")
    values = request.headers.getlist(REQUEST)
    if len(values) != 1:
        raise Refused(f"expected exactly one header {REQUEST}")
    return read_request(values[0].encode("latin-1"), shape)


@asynccontextmanager
async def spool_body(
    request: Request, most: int, budget: Budget, key: str
) -> AsyncIterator[tuple[IO[bytes], str, int]]:
    """Yields (file with the request body, SHA-256 in hex, size in bytes).

    The file is deleted after the block. `budget` counts the bytes for `key` as they arrive. Raises Refused,
    NotReached, OSError.
    """
    length, size, digest = content_length(request), 0, hashlib.sha256()
    async with budget.hold(key, 0) as grant:
        with tempfile.SpooledTemporaryFile(1 << 20) as file:
            async for piece in pieces(request, most):
                size += len(piece)
                await _reach(grant, size, most if length is None else length)
                digest.update(piece)
                await asyncio.to_thread(file.write, piece)
            file.seek(0)
            yield file, digest.hexdigest(), size


async def _reach(grant: Grant, size: int, most: int) -> None:
    """Extends the grant to `size` bytes, and up to _STEP bytes in advance."""
    if size > grant.size:
        await grant.reach(max(size, min(most, size + _STEP)))


def fingerprint(record: Record, *more: str) -> str:
    """Returns one SHA-256 (hex) of a request without its request id, and of the texts `more`."""
    text = json.dumps({**record, "request_id": None}, sort_keys=True)
    return hashlib.sha256("\0".join((text, *more)).encode()).hexdigest()
