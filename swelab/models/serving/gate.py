"""The gate in front of our model servers: a token on every path, a list of paths, requests checked by shape.

An engine's own HTTP server also controls it (weights, profiles, dumps, other clients' requests), fetches
addresses that a request names, and crashes at some requests. So clients reach it only through the gate: other
paths than those listed do not exist, and fields that a shape does not name are refused before an engine sees
them.
"""

import asyncio
import hashlib
import hmac
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import httpx
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from swelab.models.serving.gate_bodies import SILENCE_SECONDS, Bodies, Cut
from swelab.models.serving.request_shapes import Limits, Refused, Shape, engine_body, read_request
from swelab.models.serving.workers import Worker, Workers

REQUEST_SECONDS = 3600.0
QUIET_SECONDS = 1800.0
"""Longest time that an engine may take for the next piece of an answer."""
ATTEMPTS = 3
AGAIN_SECONDS = 0.3
LOSSES, LOSS_SECONDS, LOST = 3, 600.0, 10_000
"""A request during which LOSSES engines ended within LOSS_SECONDS is sent to no further one. LOST: how many
such requests are remembered."""
FREE_BYTES, BYTES_PER_TOKEN = 1 << 20, 64
"""Longest body: FREE_BYTES, and BYTES_PER_TOKEN for each token of the context."""
MOST_REQUESTS = 4096
MODELS, HEALTH = "/v1/models", ("/health", "/health_generate")


@dataclass(frozen=True)
class Served:
    """What a gate serves: the model's name and those of its adapters, their limits, each path's shape."""

    names: Sequence[str]
    limits: Limits
    shapes: Mapping[str, type[Shape]]

    @property
    def body_bytes(self) -> int:
        """The longest body that is taken."""
        return FREE_BYTES + BYTES_PER_TOKEN * self.limits.context_length


class Peers(Protocol):
    """The connections of a server, by the address of their peer."""

    def known(self, peer: tuple[str, int] | None) -> None:
        """A connection has shown the token: a request of it begins."""
        ...

    def rests(self, peer: tuple[str, int] | None) -> None:
        """A request of a connection has ended."""
        ...

    def cut(self, peer: tuple[str, int] | None) -> None:
        """End a connection without waiting for what its peer does not take."""
        ...


class Gate:
    """An ASGI application in front of `workers`. Clients show `token`, engines are shown `key`."""

    def __init__(self, served: Served, workers: Workers, token: str, key: str, peers: Peers):
        self._served, self._workers, self._peers = served, workers, peers
        self._token = hashlib.sha256(token.encode()).digest()
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=2)
        timeout = httpx.Timeout(QUIET_SECONDS, connect=10)
        self._client = httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False)
        self._running, self._bodies = 0, Bodies(served.body_bytes)
        self._lost: OrderedDict[bytes, list[float]] = OrderedDict()
        self._began = int(time.time())

    async def watch(self) -> None:
        """Asks the engines to generate, for as long as it runs."""
        await self._workers.watch(self._client)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            return
        self._running += 1
        try:
            await self._answer(scope, receive, _patient(send))
        except Refused as error:
            await refusal(str(error), error.status)(scope, receive, _patient(send))
        except (Cut, TimeoutError):
            self._peers.cut(scope.get("client"))
        finally:
            self._running -= 1
            self._peers.rests(scope.get("client"))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        method, path = scope["method"], scope["path"]
        self._admit(scope)
        asked = self._served.shapes.get(path)
        wanted = "POST" if asked else "GET" if path == MODELS or path in HEALTH else ""
        if not wanted:
            known = ", ".join((*self._served.shapes, MODELS, HEALTH[0]))
            raise Refused(f"no such path here; expected one of {known}", 404)
        if method != wanted:
            raise Refused(f"{path} takes {wanted} only", 405)
        if asked:
            await self._generate(path, asked, scope, receive, send)
        else:
            await (self._models() if path == MODELS else self._health())(scope, receive, send)

    def _admit(self, scope: Scope) -> None:
        """Raises Refused for a request without the token, or in a form that is not understood."""
        headers: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.lower(), []).append(value)
        shown = headers.get(b"authorization", [])
        scheme, _, value = shown[0].partition(b" ") if len(shown) == 1 else (b"", b"", b"")
        right = hmac.compare_digest(hashlib.sha256(value.strip()).digest(), self._token)
        if scheme.lower() != b"bearer" or not right:
            raise Refused("a token is required: Authorization: Bearer ...", 401)
        self._peers.known(scope.get("client"))
        if scope["query_string"]:
            raise Refused("query strings are not accepted; expected all fields in the body")
        if headers.get(b"content-encoding", [b"identity"]) != [b"identity"]:
            raise Refused("compressed bodies are not accepted; expected no Content-Encoding", 415)
        if self._running > MOST_REQUESTS and not self._bodies.end_oldest():
            raise Refused(f"over {MOST_REQUESTS} requests at once; try again", 503)

    def _models(self) -> Response:
        facts = {"object": "model", "created": self._began, "owned_by": "swelab"}
        facts |= {"max_model_len": self._served.limits.context_length}
        return JSONResponse(
            {"object": "list", "data": [{"id": name, **facts} for name in self._served.names]}
        )

    def _health(self) -> Response:
        found = self._workers.generating()
        record = {"servers": len(self._workers.each), "generating": found}
        return JSONResponse(record, 200 if found else 503)

    async def _generate(
        self, path: str, shape: type[Shape], scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Reads a request, has an engine answer it, and gives up when the client goes away."""
        with self._bodies.room() as room:
            body = await self._bodies.read(scope, receive, room)
            request = read_request(body, shape, self._served.limits)
            del body
            content = engine_body(request)
            beginning = request.beginning() if len(self._workers.each) > 1 else ()
            del request
            forward = asyncio.ensure_future(self._forward(path, content, beginning, send))
            gone = asyncio.ensure_future(_gone(receive))
            try:
                async with asyncio.timeout(REQUEST_SECONDS):
                    await asyncio.wait((forward, gone), return_when=asyncio.FIRST_COMPLETED)
                if forward.done():
                    forward.result()
            finally:
                for task in (forward, gone):
                    task.cancel()
                await asyncio.gather(forward, gone, return_exceptions=True)

    async def _forward(self, path: str, content: bytes, beginning: Sequence[bytes], send: Send) -> None:
        """Has a worker answer; if it is lost before its answer began, another one."""
        tried: list[Worker] = []
        name = hashlib.blake2b(content, digest_size=16).digest()
        for attempt in range(ATTEMPTS):
            if len(self._losses(name)) >= LOSSES:
                raise Refused(f"{LOSSES} model servers ended while they answered this request", 500)
            worker = self._workers.choose(beginning, tried)
            if worker and await self._carried(worker, path, content, name, send):
                return
            tried += [worker] if worker else []
            await asyncio.sleep(AGAIN_SECONDS * attempt)
        raise Refused("no model server is up; try again", 503)

    def _losses(self, name: bytes) -> list[float]:
        """When engines were lost during a request, within LOSS_SECONDS."""
        found = [at for at in self._lost.get(name, ()) if at > time.monotonic() - LOSS_SECONDS]
        if name in self._lost:
            self._lost[name] = found
        return found

    def _lose(self, name: bytes) -> None:
        self._lost[name] = [*self._losses(name), time.monotonic()]
        self._lost.move_to_end(name)
        while len(self._lost) > LOST:
            self._lost.popitem(last=False)

    async def _carried(self, worker: Worker, path: str, content: bytes, name: bytes, send: Send) -> bool:
        """Whether a worker answered. Raises Cut when it was lost in the middle of its answer."""
        began = False
        worker.load += 1
        try:
            async with self._client.stream(
                "POST", worker.url + path, content=content, headers=self._headers
            ) as answer:
                if answer.status_code in (401, 503):  # another engine took its port, or it is ending
                    worker.generates = False
                    return False
                kind = answer.headers.get("content-type", "application/json")
                head = [(b"content-type", kind.encode("latin-1"))]
                if "content-length" in answer.headers and "content-encoding" not in answer.headers:
                    head.append((b"content-length", answer.headers["content-length"].encode()))
                began = True
                await send({"type": "http.response.start", "status": answer.status_code, "headers": head})
                async for piece in answer.aiter_bytes():
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                if answer.is_success:
                    worker.answered()
                return True
        except httpx.HTTPError as error:
            worker.generates = False
            if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                self._lose(name)
            if began:
                raise Cut from error
            return False
        finally:
            worker.load -= 1


def refusal(text: str, status: int) -> Response:
    """An answer that says why a request is refused, in OpenAI's form."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    error = {"message": " ".join(text.split()), "type": kind, "param": None, "code": status}
    return JSONResponse({"error": error}, status, headers={"Connection": "close"})


async def _gone(receive: Receive) -> None:
    """Waits until the client goes away."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _patient(send: Send) -> Send:
    """`send`, which gives up on a client that takes nothing for SILENCE_SECONDS."""

    async def within(message: Message) -> None:
        async with asyncio.timeout(SILENCE_SECONDS):
            await send(message)

    return within
