"""The front door of both servers: checks each request first, and sends the answers.

Token, connections, sizes, times and shape of a request are checked here, before it has any effect. Errors
become answers here. Memory that an answer uses is given back when it has been sent.
"""

import asyncio
import hashlib
import hmac
import json
import logging
from base64 import b64decode
from codecs import getincrementaldecoder
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Lifespan, Message, Receive, Scope, Send

from swelab.pool.body_scan import BodyScan
from swelab.pool.budget import SLOWEST, Budget, Credit, Turns
from swelab.pool.connections import WRITE_SECONDS, Connections
from swelab.records import Fault, InputError, Record
from swelab.sandbox.remote_protocol import BYTES, RESULT, NotReached, Refused, error_record, header

_BODIES_BYTES = 64 << 20  # of JSON that comes in or is read, at once
_AT_ONCE = 4096  # requests of one token
_PIECE = 64 << 10
_UPLOADS = 64  # at once
_log = logging.getLogger(__name__)


class TooBig(Refused):
    """A body with too many bytes."""


class Conflict(Refused):
    """The id of another request, or a request that the state does not allow."""


_STATUS: dict[type[Exception], int] = {TooBig: 413, Conflict: 409}


class FrontDoor:
    """Refuses requests without a token before any of the body is read, and too many requests of one token.

    `tokens`: role -> tokens. The scope gets the token's roles as `roles`, and a name of the token as `who`.
    Only plain HTTP, no query strings.
    """

    def __init__(
        self, app: ASGIApp, tokens: Mapping[str, Sequence[str]], seen: Callable[[str, int], None]
    ) -> None:
        self._app, self._seen = app, seen
        self._tokens = [
            (role, hashlib.sha256(token.encode()).digest()) for role, own in tokens.items() for token in own
        ]
        self.connections = Connections()
        self.bodies = Budget("this server's memory for requests", _BODIES_BYTES)
        self.uploads = Budget("uploads that this server passes on", _UPLOADS)
        self.scan, self.turns = BodyScan(), Turns()
        self._asked: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, send)
            finally:
                self.scan.close()
            return
        if scope["type"] != "http":
            return
        status = 500

        async def sent(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        scope["door"] = self
        refused = self._refusal(scope)
        who = str(scope["who"])
        try:
            if who:
                self._asked[who] += 1
                free = self.connections.began(scope.get("client"), who) and self._asked[who] <= _AT_ONCE
                refused = refused or (None if free else _busy())
            await (refused or self._app)(scope, receive, sent)
        finally:
            if who:
                self._asked[who] -= 1
                self.connections.ended(scope.get("client"))
            self._seen(scope["path"], status)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = [(name, value) for name, value in scope["headers"]]
        shown = [value for name, value in headers if name == b"authorization"]
        scope["roles"], scope["who"] = self._roles(shown[0]) if len(shown) == 1 else (set(), "")
        if not scope["roles"]:
            return _answer(
                401, "a token is required", {"WWW-Authenticate": 'Basic realm="swelab", charset="UTF-8"'}
            )
        if scope["query_string"]:
            return _answer(400, "query strings are not accepted; expected all fields in the body")
        coded = {name: value for name, value in headers if name in (b"content-encoding", b"upgrade")}
        if coded.get(b"content-encoding", b"identity") != b"identity" or b"upgrade" in coded:
            return _answer(415, "neither content codings nor upgrades are understood")
        return None

    def _roles(self, shown: bytes) -> tuple[set[str], str]:
        """The roles of a token, and a name for the token."""
        scheme, _, value = shown.partition(b" ")
        if scheme.lower() == b"basic":
            try:
                value = b64decode(value.strip(), validate=True).partition(b":")[2]
            except ValueError:
                return set(), ""
        elif scheme.lower() != b"bearer":
            return set(), ""
        given = hashlib.sha256(value.strip()).digest()
        found = [(role, hmac.compare_digest(given, token)) for role, token in self._tokens]
        roles = {role for role, equal in found if equal}
        return roles, hashlib.sha256(given).hexdigest()[:16] if roles else ""


def _answer(status: int, text: str, headers: Mapping[str, str] | None = None) -> Response:
    # A body may follow that is not read, so the connection cannot be used again.
    record = {"ok": False, "error": text, "error_type": "Refused", "retryable": False}
    return JSONResponse(record, status, headers={"Connection": "close", **(headers or {})})


def _busy() -> Response:
    status, record = error_record(NotReached("too many requests of this token are being answered; try again"))
    return JSONResponse(record, status, headers={"Connection": "close"})


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
            return _answer(500, "a fault of this server: see its log")

    return answer


async def refuse(request: Request, error: Exception) -> Response:
    """The answer to an unknown path or method, a JSON object."""
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _answer(status, {404: "no such path", 405: "no such method here"}.get(status, "not understood"))


def guarded(
    routes: list[Route],
    life: Lifespan[Starlette],
    tokens: Mapping[str, Sequence[str]],
    seen: Callable[[str, int], None],
) -> FrontDoor:
    """A server of these paths that asks for a token. `seen` counts answers; unknown paths count as "?"."""
    app = Starlette(routes=routes, lifespan=life, exception_handlers={404: refuse, 405: refuse})
    app.router.redirect_slashes = False
    known = {route.path for route in routes}
    return FrontDoor(app, tokens, lambda path, status: seen(path if path in known else "?", status))


def bytes_answer(data: bytes, about: Record | None = None) -> Response:
    """An answer of bytes, with JSON about them in a header."""
    return Response(data, media_type=BYTES, headers={RESULT: header(about)} if about is not None else None)


def json_answer(**fields: Any) -> JSONResponse:
    """The answer {"ok": true, ...}; bytes that are not UTF-8 are escaped lone surrogates."""
    return _Ascii({"ok": True, **fields})


class _Ascii(JSONResponse):
    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=True).encode()


class TextAnswer(Response):
    """{"ok": true, ..., name: text}, of bytes that may be much text; its body is written by `write`."""

    def __init__(self, name: str, text: bytes, about: Record) -> None:
        super().__init__(media_type="application/json")
        self._name, self._text, self._about = name, text, about

    async def write(self, turns: Turns) -> None:
        """Write the body piece by piece, so that the event loop goes on meanwhile."""
        read = getincrementaldecoder("utf-8")("surrogateescape")
        about = json.dumps({"ok": True, **self._about})[:-1]
        pieces = [f'{about}, {json.dumps(self._name)}: "'.encode()]
        for at in range(0, len(self._text), _PIECE):
            if at:
                await turns.take()
            text = read.decode(self._text[at : at + _PIECE], at + _PIECE >= len(self._text))
            pieces.append(json.dumps(text)[1:-1].encode())
        self.body, self._text = b"".join([*pieces, b'"}']), b""
        self.headers["content-length"] = str(len(self.body))


def until_sent(answer: Response, held: AsyncExitStack, unread: set[asyncio.Task[None]]) -> Response:
    """The answer, sent piece by piece as the client reads it; then `held` is given back.

    While it is being sent, its task is in `unread`: cancelling the task ends the answer.
    """
    return _Holding(answer, held.pop_all(), unread)


class _Holding(Response):
    def __init__(self, answer: Response, held: AsyncExitStack, unread: set[asyncio.Task[None]]) -> None:
        super().__init__(status_code=answer.status_code)
        self.body, self.raw_headers = answer.body, answer.raw_headers
        self._held, self._unread = held, unread

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        async with self._held:
            sending = asyncio.ensure_future(self._send(send, scope["door"].turns))
            self._unread.add(sending)
            sending.add_done_callback(self._unread.discard)
            try:
                await asyncio.wait({sending})
            finally:
                sending.cancel()
                self.body = b""
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Send, turns: Turns) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        credit = Credit(WRITE_SECONDS, SLOWEST)
        await send(start)
        for at in range(0, len(self.body), _PIECE):
            if at:
                await turns.take()
            piece = bytes(self.body[at : at + _PIECE])
            try:
                await credit.wait(send({"type": "http.response.body", "body": piece, "more_body": True}))
            except TimeoutError:
                return  # the server ends the connection of an answer without an end
            credit.moved(len(piece))
        await send({"type": "http.response.body", "body": b""})
