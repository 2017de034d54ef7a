"""Checks each request to a server before the body is read and before any handler runs.

The front door checks the token, the connection, the headers and the number of concurrent requests. It
converts every error to a response.
"""

import hashlib
import hmac
from base64 import b64decode
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Lifespan, Message, Receive, Scope, Send

from swelab.http.bodies import Bodies
from swelab.http.connections import Connections
from swelab.http.pace import Turns
from swelab.http.refusal import Refused

AT_ONCE = 4096
"""Maximum number of concurrent requests of one token."""
_CHALLENGE = 'Basic realm="swelab", charset="UTF-8"'
Handler = Callable[[Request], Awaitable[Response]]
ErrorAnswer = Callable[[Exception], Response]


class FrontDoor:
    """An ASGI application that serves `routes` and rejects requests without a token before it reads the body.

    `tokens` maps each role to the tokens that have it. In the ASGI scope, `roles` are the roles of the
    request's token, `token` is a short hash of the token, and `door` is this object. Handlers raise Refused
    and `errors`. `error_answer` converts any error to a response. `count` is called with the path ("?" if
    unknown) and the status of each response. `body_bytes` limits all request bodies in memory. `connections`
    limits the open connections.
    """

    def __init__(
        self,
        routes: Sequence[Route],
        tokens: Mapping[str, Sequence[str]],
        error_answer: ErrorAnswer,
        errors: Sequence[type[Exception]] = (),
        lifespan: Lifespan[Starlette] | None = None,
        count: Callable[[str, int], None] | None = None,
        body_bytes: int = 32 << 20,
        connections: Connections | None = None,
    ) -> None:
        kinds = dict.fromkeys((HTTPException, ClientDisconnect, Refused, Exception, *errors), self._error)
        self._app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=kinds)
        self._app.router.redirect_slashes = False
        self._paths = [route.path for route in routes]
        self._error_answer, self._count = error_answer, count
        self._tokens = [(role, _digest(token.encode())) for role, own in tokens.items() for token in own]
        self.connections, self.bodies, self.turns = connections or Connections(), Bodies(body_bytes), Turns()
        self._running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, token = 500, self._show_token(scope)

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._running[token] += 1
        try:
            if refusal := self._refusal(scope, token):
                await self._refuse(refusal)(scope, receive, send_and_note)
            else:
                await self._app(scope, receive, send_and_note)
        finally:
            self._running[token] -= 1
            self.connections.end_request(scope.get("client"))
            if self._count:
                self._count(scope["path"] if scope["path"] in self._paths else "?", status)

    def _show_token(self, scope: Scope) -> str:
        """Sets `roles`, `token` and `door` in the ASGI scope.

        Returns the token's hash, or "" for an invalid token.
        """
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        digest = _digest(_token(values[0])) if len(values) == 1 else b""
        same = [(role, hmac.compare_digest(digest, token)) for role, token in self._tokens]
        scope["roles"] = {role for role, equal in same if equal}
        scope["token"] = hashlib.sha256(digest).hexdigest()[:16] if scope["roles"] else ""
        scope["door"] = self
        return str(scope["token"])

    def _refusal(self, scope: Scope, token: str) -> Refused | None:
        if not token:
            return Refused("a token is required: Authorization: Bearer ...", 401)
        if not self.connections.start_request(scope.get("client"), token) or (
            self._running[token] > AT_ONCE and not self.bodies.end_oldest()
        ):
            return Refused("this token has too many concurrent requests; try again", 503)
        if scope["query_string"]:
            return Refused("query strings are not accepted; expected all fields in the body")
        encodings = {
            name: value for name, value in scope["headers"] if name in (b"content-encoding", b"upgrade")
        }
        if encodings.get(b"content-encoding", b"identity") != b"identity" or b"upgrade" in encodings:
            return Refused("content encodings and protocol upgrades are not supported", 415)
        return None

    def _refuse(self, refusal: Refused) -> Response:
        """Returns the response to a rejected request.

        The response closes the connection, since an unread body may follow on it.
        """
        answer = self._error_answer(refusal)
        answer.headers["Connection"] = "close"
        if refusal.status == 401:
            answer.headers["WWW-Authenticate"] = _CHALLENGE
        return answer

    async def _error(self, request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 404:
            error = Refused(f"no such path here; expected one of {', '.join(self._paths)}", 404)
        elif isinstance(error, HTTPException):
            error = Refused(f"{request.url.path} does not take {request.method}", error.status_code)
        elif isinstance(error, ClientDisconnect):
            error = Refused("the client disconnected")
        return self._refuse(error) if isinstance(error, Refused) else self._error_answer(error)


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def _token(header: bytes) -> bytes:
    """Returns the token of an Authorization header: Bearer, or the password of Basic. The default is ""."""
    scheme, _, value = header.partition(b" ")
    if scheme.lower() == b"bearer":
        return value.strip()
    try:
        password = b64decode(value.strip(), validate=True).partition(b":")[2]
    except ValueError:
        return b""
    return password if scheme.lower() == b"basic" else b""
