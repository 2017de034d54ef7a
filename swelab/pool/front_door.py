"""The front door of both servers: what they do with a request first, and how they answer.

Token, connections, sizes, times and shape of a request are looked at here, before anything is touched; errors
are told here; and what an answer holds is held until it has been sent.
"""

import asyncio
import hashlib
import hmac
import json
import logging
from base64 import b64decode
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

from swelab.pool.budget import Budget
from swelab.pool.connections import Connections
from swelab.records import Fault, InputError, Record
from swelab.sandbox.remote_protocol import BYTES, RESULT, NotReached, Refused, error_record, header

_BODIES_BYTES = 64 << 20  # of JSON that comes in or is read, at once
_AT_ONCE = 4096  # requests of one token
_PIECE = 256 << 10
_UPLOADS = 64  # at once
_log = logging.getLogger(__name__)


class TooBig(Refused):
    """A body with more bytes than may be."""


class Conflict(Refused):
    """The id of another request, or what the state does not allow."""


_STATUS: dict[type[Exception], int] = {TooBig: 413, Conflict: 409}


class FrontDoor:
    """Refuses requests without a token before anything of the body is read, and who asks too much at once.

    `tokens`: role -> tokens. The roles shown are in the scope as `roles`, whose token it is as `who`. Plain
    HTTP alone, no query strings.
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
        self.reading = asyncio.Lock()
        self._asked: Counter[str] = Counter()

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

        scope["door"] = self
        refused = self._refusal(scope)
        who = str(scope["who"])
        try:
            if who:
                self._asked[who] += 1
                free = self.connections.began(scope.get("client"), who) and self._asked[who] <= _AT_ONCE
                refused = refused or (None if free else _busy())
            await (refused or self._app)(scope, receive, tell)
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
        """The roles that a token has, and a name for whose it is."""
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
    # Perhaps a body follows that is not read: the connection cannot be used again.
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
            return _answer(500, "a fault of this server: its log tells more")

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


def bytes_answer(data: bytes, told: Record | None = None) -> Response:
    """An answer of bytes, with JSON about them in a header."""
    return Response(data, media_type=BYTES, headers={RESULT: header(told)} if told is not None else None)


def json_answer(**told: Any) -> JSONResponse:
    """The answer {"ok": true, ...}; bytes that are not UTF-8 are escaped lone surrogates."""
    return _Ascii({"ok": True, **told})


class _Ascii(JSONResponse):
    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=True).encode()


def until_sent(answer: Response, held: AsyncExitStack, unread: set[asyncio.Task[None]]) -> Response:
    """The answer, sent piece by piece as it is read; what it holds is given back when it has been sent.

    While it is sent its task is among `unread`; who cancels it there cuts the answer off.
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
            sending = asyncio.ensure_future(self._send(send))
            self._unread.add(sending)
            sending.add_done_callback(self._unread.discard)
            try:
                await asyncio.wait({sending})
            finally:
                sending.cancel()
                self.body = b""
        if not sending.cancelled():
            sending.result()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        await send(start)
        for at in range(0, len(self.body), _PIECE):
            piece = bytes(self.body[at : at + _PIECE])
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
