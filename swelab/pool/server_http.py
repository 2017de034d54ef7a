"""What both servers do with a request first (token, sizes, times, shape), and how they answer."""

import asyncio
import hashlib
import hmac
import json
import logging
import tempfile
from base64 import b64decode
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import IO, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from swelab.pool.request_schemas import PoolRequest
from swelab.records import Fault, InputError, Record, check
from swelab.sandbox.remote_protocol import BYTES, REQUEST, RESULT, Refused, error_record, header

JSON_BYTES = 4 << 20
SILENCE_SECONDS = 60.0  # between two pieces of a body
_log = logging.getLogger(__name__)


class TooBig(Refused):
    """A body with more bytes than may be."""


class Conflict(Refused):
    """The id of another request, or what the state does not allow."""


_STATUS: dict[type[Exception], int] = {TooBig: 413, Conflict: 409}


class TokenGuard:
    """Refuses requests without a token before anything of the body is read.

    `tokens`: role -> token. The roles shown are in the scope as `roles`. Plain HTTP alone, no query strings.
    """

    def __init__(self, app: ASGIApp, tokens: Mapping[str, str], seen: Callable[[str, int], None]) -> None:
        self._app, self._seen = app, seen
        self._tokens = {role: hashlib.sha256(token.encode()).digest() for role, token in tokens.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        status = 500

        async def tell(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            refused = self._refusal(scope)
            await (refused or self._app)(scope, receive, tell)
        finally:
            self._seen(scope["path"], status)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = [(name, value) for name, value in scope["headers"]]
        shown = [value for name, value in headers if name == b"authorization"]
        scope["roles"] = self._roles(shown[0]) if len(shown) == 1 else set()
        if not scope["roles"]:
            return _answer(
                401, "a token is required", {"WWW-Authenticate": 'Basic realm="swelab", charset="UTF-8"'}
            )
        if scope["query_string"]:
            return _answer(400, "query strings are not understood")
        coded = {name: value for name, value in headers if name in (b"content-encoding", b"upgrade")}
        if coded.get(b"content-encoding", b"identity") != b"identity" or b"upgrade" in coded:
            return _answer(415, "neither content codings nor upgrades are understood")
        return None

    def _roles(self, shown: bytes) -> set[str]:
        scheme, _, value = shown.partition(b" ")
        if scheme.lower() == b"basic":
            try:
                value = b64decode(value.strip(), validate=True).partition(b":")[2]
            except ValueError:
                return set()
        elif scheme.lower() != b"bearer":
            return set()
        given = hashlib.sha256(value.strip()).digest()
        found = {role: hmac.compare_digest(given, token) for role, token in self._tokens.items()}
        return {role for role, equal in found.items() if equal}


def _answer(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    # Perhaps a body follows that is not read: the connection cannot be used again.
    record = {"ok": False, "error": text, "error_type": "Refused", "retryable": False}
    return JSONResponse(record, status, headers={"Connection": "close", **(headers or {})})


Handler = Callable[[Request], Awaitable[Response]]


def answering(endpoint: Handler) -> Handler:
    """The endpoint; it answers an error with a JSON object of one line."""

    async def answer(request: Request) -> Response:
        try:
            return await endpoint(request)
        except ClientDisconnect:
            return _answer(400, "cut off")
        except HTTPException:
            raise
        except (Fault, OSError, ValueError) as error:
            shown = Refused(str(error)) if isinstance(error, InputError) else error
            status, record = error_record(shown)
            status = _STATUS.get(type(error), status)
            headers = {"Connection": "close"} if status in (400, 413) else None
            return _Ascii(record, status, headers=headers)
        except Exception:
            _log.exception("%s failed", request.url.path)
            return _answer(500, "a fault of this server: its log tells more")

    return answer


async def refuse(request: Request, error: Exception) -> Response:
    """The answer to an unknown path or method, a JSON object."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _answer(status, {404: "no such path", 405: "no such method here"}.get(status, "not understood"))


def guarded(
    routes: list[Route],
    life: Lifespan[Starlette],
    tokens: Mapping[str, str],
    seen: Callable[[str, int], None],
) -> TokenGuard:
    """A server of these paths that asks for a token. `seen` counts answers; unknown paths count as "?"."""
    app = Starlette(routes=routes, lifespan=life, exception_handlers={404: refuse, 405: refuse})
    app.router.redirect_slashes = False
    known = {route.path for route in routes}
    return TokenGuard(app, tokens, lambda path, status: seen(path if path in known else "?", status))


async def read_json(request: Request, schema: Record) -> PoolRequest:
    """The body, a JSON object of that shape. Raises Refused, TooBig."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused("the body is not declared as application/json")
    body = b"".join([piece async for piece in pieces(request, JSON_BYTES)])
    return _parsed(body, schema, request.url.path)


def described(request: Request, schema: Record) -> PoolRequest:
    """The fields in the header of a request whose body is bytes. Raises Refused."""
    if request.headers.get("content-type") != BYTES:
        raise Refused(f"the body is not declared as {BYTES}")
    shown = request.headers.getlist(REQUEST)
    if len(shown) != 1:
        raise Refused(f"not one header {REQUEST}")
    return _parsed(shown[0].encode("latin-1"), schema, request.url.path)


async def spool(request: Request, most: int) -> tuple[IO[bytes], str]:
    """(the body as a file at its start, its SHA-256). Raises TooBig, Refused, OSError (disk full)."""
    file: IO[bytes] = tempfile.SpooledTemporaryFile(8 << 20)
    seen = hashlib.sha256()
    try:
        async for piece in pieces(request, most):
            seen.update(piece)
            await asyncio.to_thread(file.write, piece)
        file.seek(0)
    except BaseException:
        file.close()
        raise
    return file, seen.hexdigest()


async def pieces(request: Request, most: int) -> AsyncIterator[bytes]:
    """The body piece by piece. Raises TooBig; Refused when it dries up."""
    try:
        told = int(request.headers.get("content-length") or 0)
    except ValueError:
        raise Refused("the length of the body is no number") from None
    if told > most:
        raise TooBig(f"the body has {told} bytes; at most {most} are taken")
    stream, count = request.stream(), 0
    while True:
        try:
            async with asyncio.timeout(SILENCE_SECONDS):
                piece = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Refused("the body did not come in time") from None
        count += len(piece)
        if count > most:
            raise TooBig(f"the body has more than {most} bytes")
        yield piece


def _parsed(data: bytes, schema: Record, where: str) -> PoolRequest:
    try:
        found = json.loads(data, object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise Refused("the request is not JSON, or names a field twice") from None
    try:
        check(found, "request", where, schema)
    except (RecursionError, OverflowError):
        raise Refused("the request is nested too deeply, or a number is too big") from None
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


def bytes_answer(data: bytes, told: Record | None = None) -> Response:
    """An answer of bytes, with JSON about them in a header."""
    return Response(data, media_type=BYTES, headers={RESULT: header(told)} if told is not None else None)


def json_answer(**told: Any) -> JSONResponse:
    """The answer {"ok": true, ...}; bytes that are not UTF-8 are escaped lone surrogates."""
    return _Ascii({"ok": True, **told})


class _Ascii(JSONResponse):
    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=True).encode()
