"""A pool's connection to one exec server."""

import ssl
from collections.abc import AsyncIterator
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from swelab.http.bodies import pieces
from swelab.http.pace import Turns
from swelab.http.sockets import KEEPALIVE
from swelab.records import Record
from swelab.sandbox.remote_protocol import BYTES, REQUEST, RESULT, NotReached, header, told_error

_CONNECT_SECONDS = 5.0
_PIECE = 16 << 10
_IDLE_SECONDS = 10.0  # httpx examines every idle connection at each request, so we keep few


class Link:
    """Sends requests to a node. A failed connection raises NotReached.

    An error response raises the node's error.
    """

    def __init__(self, url: str, token: str, trust: ssl.SSLContext | bool = True) -> None:
        self.url = url
        transport = httpx.AsyncHTTPTransport(
            limits=httpx.Limits(
                max_connections=None, max_keepalive_connections=64, keepalive_expiry=_IDLE_SECONDS
            ),
            verify=trust,
            socket_options=KEEPALIVE,
        )
        self._client = httpx.AsyncClient(
            base_url=url, headers={"Authorization": f"Bearer {token}"}, transport=transport, trust_env=False
        )

    async def ask(self, path: str, body: Record, seconds: float) -> Record:
        """Sends a JSON request and returns the response.

        Raises NotReached, TimeoutError, and the node's errors.
        """
        timeout = httpx.Timeout(seconds, connect=_CONNECT_SECONDS)
        try:
            answer = await self._client.post(
                path, content=header(body), headers={"Content-Type": "application/json"}, timeout=timeout
            )
        except httpx.ReadTimeout:
            raise TimeoutError(f"{self.url} did not answer {path} in {seconds} s") from None
        except httpx.HTTPError as error:
            raise NotReached(f"{self.url} cannot be reached: {type(error).__name__}") from None
        return _record(answer)

    async def forward(self, path: str, body: Record, request: Request, most: int, seconds: float) -> Response:
        """Forwards a client's request to the node and returns the response as a stream.

        most: maximum body size in bytes. Raises NotReached.
        """
        timeout = httpx.Timeout(seconds, connect=_CONNECT_SECONDS)
        if request.headers.get("content-type") == BYTES:
            content: Any = pieces(request, most)
            headers = {"Content-Type": BYTES, REQUEST: header(body)}
            if "content-length" in request.headers:
                headers["Content-Length"] = request.headers["content-length"]
        else:
            content = header(body)
            headers = {"Content-Type": "application/json", "Accept": request.headers.get("accept", "")}
        sent = self._client.build_request("POST", path, content=content, headers=headers, timeout=timeout)
        try:
            answer = await self._client.send(sent, stream=True)
        except httpx.HTTPError as error:
            raise NotReached(f"{self.url} cannot be reached: {type(error).__name__}") from None
        names = [name for name in ("content-type", "content-length", RESULT) if name in answer.headers]
        about = {name: answer.headers[name] for name in names}
        stream = _body(answer, request.scope["door"].turns)
        return StreamingResponse(stream, answer.status_code, headers=about)

    async def close(self) -> None:
        """Closes all connections to the node."""
        await self._client.aclose()


async def _body(answer: httpx.Response, turns: Turns) -> AsyncIterator[bytes]:
    try:
        async for piece in answer.aiter_raw():
            yield piece
            if len(piece) >= _PIECE:
                await turns.take()
    finally:
        await answer.aclose()


def _record(answer: httpx.Response) -> Record:
    try:
        record = answer.json()
    except ValueError:
        record = None
    if answer.status_code != 200 or not isinstance(record, dict):
        raise told_error(answer.status_code, record)
    return record
