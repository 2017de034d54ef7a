"""Builds the HTTP responses of the pool's servers.

A large response counts as used memory until it is sent.
"""

import asyncio
import json
from codecs import getincrementaldecoder
from contextlib import AsyncExitStack
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from swelab.http import refusal
from swelab.http.connections import WRITE_SECONDS
from swelab.http.pace import SLOWEST, Credit, Turns
from swelab.records import Fault, InputError, Record
from swelab.sandbox.remote_protocol import BYTES, RESULT, NotReached, Refused, error_record, header

ERRORS = (Fault, OSError, ValueError)
"""Exceptions whose message is sent to the client. Other exceptions are only written to the server's log."""
_PIECE = 64 << 10


def error_answer(error: Exception) -> Response:
    """Returns the response {"ok": false, "error": <one line>, "error_type", "retryable"} for an exception."""
    cause = error
    if isinstance(error, refusal.Refused):
        cause = (NotReached if error.status == 503 else Refused)(str(error))
    elif isinstance(error, InputError):
        cause = Refused(str(error))
    elif not isinstance(error, ERRORS):
        cause = Refused("a fault of this server: see its log")
    status, record = error_record(cause)
    status = getattr(error, "status", status) if isinstance(error, ERRORS) else 500
    return _Ascii(record, status, headers={"Connection": "close"} if status == 400 else None)


def bytes_answer(data: bytes, about: Record | None = None) -> Response:
    """Returns a response whose body is `data`. `about` is sent as JSON in a header."""
    return Response(data, media_type=BYTES, headers={RESULT: header(about)} if about is not None else None)


def json_answer(**fields: Any) -> JSONResponse:
    """Returns the JSON response {"ok": true, **fields}.

    Non-ASCII characters and lone surrogates are escaped.
    """
    return _Ascii({"ok": True, **fields})


class _Ascii(JSONResponse):
    def render(self, content: Any) -> bytes:
        return json.dumps(content, ensure_ascii=True).encode()


class TextAnswer(Response):
    """The response {"ok": true, ..., name: text} with a large text.

    Call `write` before the response is sent.
    """

    def __init__(self, name: str, text: bytes, about: Record) -> None:
        super().__init__(media_type="application/json")
        self._name, self._text, self._about = name, text, about

    async def write(self, turns: Turns) -> None:
        """Builds the body piece by piece, so that the server can handle other requests in between."""
        read = getincrementaldecoder("utf-8")("surrogateescape")
        about = json.dumps({"ok": True, **self._about})[:-1]
        pieces = [f'{about}, {json.dumps(self._name)}: "'.encode()]
        for start in range(0, len(self._text), _PIECE):
            if start:
                await turns.take()
            text = read.decode(self._text[start : start + _PIECE], start + _PIECE >= len(self._text))
            pieces.append(json.dumps(text)[1:-1].encode())
        self.body, self._text = b"".join([*pieces, b'"}']), b""
        self.headers["content-length"] = str(len(self.body))


def release_when_sent(
    answer: Response, resources: AsyncExitStack, unread: set[asyncio.Task[None]]
) -> Response:
    """Wraps `answer` so that it is sent piece by piece, as fast as the client reads it.

    `resources` is closed when the response has been sent. Until the response has been sent, `unread` contains
    the task that sends it. Cancelling that task aborts the response.
    """
    return _MeteredAnswer(answer, resources.pop_all(), unread)


class _MeteredAnswer(Response):
    def __init__(self, answer: Response, resources: AsyncExitStack, unread: set[asyncio.Task[None]]) -> None:
        super().__init__(status_code=answer.status_code)
        self.body, self.raw_headers = answer.body, answer.raw_headers
        self._resources, self._unread = resources, unread

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        async with self._resources:
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
        for position in range(0, len(self.body), _PIECE):
            if position:
                await turns.take()
            piece = bytes(self.body[position : position + _PIECE])
            try:
                await credit.wait(send({"type": "http.response.body", "body": piece, "more_body": True}))
            except TimeoutError:
                return  # the server closes a connection whose response is incomplete
            credit.add_bytes(len(piece))
        await send({"type": "http.response.body", "body": b""})
