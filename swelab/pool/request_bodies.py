"""Bodies of requests: their bytes, time, depth and values are bounded before anything is made of them."""

import asyncio
import hashlib
import json
import re
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, Any

from starlette.requests import Request

from swelab.pool.budget import Budget
from swelab.pool.front_door import FrontDoor, TooBig
from swelab.pool.request_schemas import PoolRequest, first_fault
from swelab.records import Record
from swelab.sandbox.remote_protocol import BYTES, REQUEST, Refused

SMALL_BYTES = 64 << 10
JSON_BYTES = 4 << 20  # of requests with commands, patches or many names
BODY_SECONDS = 30.0  # that a server waits for a body, and more as long as it comes at _SLOWEST
_SLOWEST = 32 << 10  # bytes a second
_DEPTH, _VALUES = 16, 100_000  # of JSON
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


async def read_json(request: Request, schema: Record, most: int = SMALL_BYTES) -> PoolRequest:
    """The body, a JSON object of that shape. Raises Refused, TooBig, NotReached (no memory for it now)."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused("the body is not declared as application/json")
    told = _told(request, most)
    size = most if told is None else told
    door: FrontDoor = request.scope["door"]
    if size <= SMALL_BYTES:
        return _parsed(b"".join([piece async for piece in pieces(request, most)]), schema, request.url.path)
    async with door.bodies.hold(sender(request), size):
        body = b"".join([piece async for piece in pieces(request, most)])
        async with door.reading:  # one at a time: the others of this server go on meanwhile
            return await asyncio.to_thread(_parsed, body, schema, request.url.path)


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

    `room` counts its bytes for `key` before they are read. Raises TooBig, Refused, NotReached, OSError.
    """
    told, size, seen = _told(request, most), 0, hashlib.sha256()
    async with room.hold(key, told or 0) as grant:
        with tempfile.SpooledTemporaryFile(1 << 20) as file:
            async for piece in pieces(request, most):
                size += len(piece)
                if size > grant.size:
                    grant.grow(min(most, size + (16 << 20)) - grant.size)
                seen.update(piece)
                await asyncio.to_thread(file.write, piece)
            file.seek(0)
            yield file, seen.hexdigest(), size


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
    _told(request, most)
    stream, count, waited = request.stream(), 0, 0.0
    while True:
        began = time.monotonic()
        try:
            async with asyncio.timeout(BODY_SECONDS + count / _SLOWEST - waited):
                piece = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Refused("the body did not come in time") from None
        waited += time.monotonic() - began
        count += len(piece)
        if count > most:
            raise TooBig(f"the body has more than {most} bytes")
        yield piece


def _bounded(data: bytes) -> bool:
    """Whether JSON has no more depth and values than any request needs; strings count as nothing."""
    if data.count(b"[") + data.count(b"{") <= _DEPTH and data.count(b",") <= _VALUES:
        return True
    bare = _STRINGS.sub(b"", data)
    depth = 0
    for bracket in bare.translate(None, _NO_BRACKETS):
        depth += 1 if bracket in b"[{" else -1
        if depth > _DEPTH:
            return False
    return bare.count(b",") <= _VALUES


def _parsed(data: bytes, schema: Record, where: str) -> PoolRequest:
    if not _bounded(data):
        raise Refused(f"the request is nested deeper than {_DEPTH}, or has more than {_VALUES} values")
    try:
        found = json.loads(data, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Refused("the request is not JSON, or names a field twice") from None
    if isinstance(found, dict) and found.get("env", "") is None:
        del found["env"]  # some clients say so that there are none
    if fault := first_fault(schema, found):
        raise Refused(f"{where}: {fault}; expected a valid request")
    return PoolRequest.of(found)


def _once(pairs: list[tuple[str, Any]]) -> Record:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a field is given twice")
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number")


def fingerprint(record: Record, *more: str) -> str:
    """SHA-256 (hex) of what was asked, without the request's id."""
    text = json.dumps({**record, "request_id": None}, sort_keys=True)
    return hashlib.sha256("\0".join((text, *more)).encode()).hexdigest()
