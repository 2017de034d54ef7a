"""The gate in front of our model servers checks the token, path and schema of every request.

Through an engine's own HTTP server, a client could control the engine (weights, profiles, dumps, requests of
other clients). That server also fetches URLs that a request contains, and some requests crash it. So clients
reach an engine only through the gate. The gate serves a fixed list of paths and rejects fields that a schema
does not list.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from swelab.http.bodies import disconnect
from swelab.http.connections import Connections
from swelab.http.front_door import FrontDoor
from swelab.http.refusal import Refused
from swelab.models.serving.request_shapes import Limits, Shape, engine_body, read_request
from swelab.models.serving.workers import Worker, Workers

REQUEST_SECONDS = 3600.0
QUIET_SECONDS = 1800.0
"""Maximum number of seconds without data from an engine during a response."""
ATTEMPTS = 3
AGAIN_SECONDS = 0.3
LOSSES, LOSS_SECONDS, LOST = 3, 600.0, 10_000
"""If LOSSES engines died within LOSS_SECONDS while they served the same request, the gate rejects that
request. LOST: how many such requests the gate remembers."""
FREE_BYTES, BYTES_PER_TOKEN = 1 << 20, 64
"""Maximum size of a request body: FREE_BYTES, plus BYTES_PER_TOKEN for each token of the context."""
BODIES_BYTES, BODIES = 256 << 20, 4
"""Maximum total size in bytes of the request bodies in memory. At least BODIES bodies of maximum size fit."""
CONNECTIONS, UNAUTHENTICATED = 5462, 512
"""Maximum number of open connections (4,096 with one token), and how many of them may be unauthenticated."""
MODELS, HEALTH = "/v1/models", ("/health", "/health_generate")


@dataclass(frozen=True)
class ServedModel:
    """The names of the model and its adapters, their limits, and the schema of each path."""

    names: Sequence[str]
    limits: Limits
    shapes: Mapping[str, type[Shape]]

    @property
    def body_bytes(self) -> int:
        """Maximum size of a request body in bytes."""
        return FREE_BYTES + BYTES_PER_TOKEN * self.limits.context_length


class Gate:
    """Forwards requests to `workers`. key: the key that the workers accept."""

    def __init__(self, served: ServedModel, workers: Workers, key: str):
        self._served, self._workers = served, workers
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=256, keepalive_expiry=2)
        timeout = httpx.Timeout(QUIET_SECONDS, connect=10)
        self._client = httpx.AsyncClient(limits=limits, timeout=timeout, trust_env=False)
        self._lost: OrderedDict[bytes, list[float]] = OrderedDict()
        self._start = int(time.time())

    def app(self, token: str) -> FrontDoor:
        """Returns the gate as an ASGI application. Clients need `token`."""
        routes = [
            Route(path, self._generate(path, shape), methods=["POST"])
            for path, shape in self._served.shapes.items()
        ]
        routes += [Route(MODELS, self._models), *(Route(path, self._health) for path in HEALTH)]
        most = max(BODIES_BYTES, BODIES * self._served.body_bytes)
        connections = Connections(CONNECTIONS, UNAUTHENTICATED)
        return FrontDoor(routes, {"client": [token]}, error_answer, body_bytes=most, connections=connections)

    async def watch(self) -> None:
        """Checks regularly, until cancelled, whether the engines generate."""
        await self._workers.watch(self._client)

    async def _models(self, request: Request) -> Response:
        facts = {"object": "model", "created": self._start, "owned_by": "swelab"}
        facts |= {"max_model_len": self._served.limits.context_length}
        return JSONResponse(
            {"object": "list", "data": [{"id": name, **facts} for name in self._served.names]}
        )

    async def _health(self, request: Request) -> Response:
        count = self._workers.generating()
        return JSONResponse({"servers": len(self._workers.each), "generating": count}, 200 if count else 503)

    def _generate(self, path: str, shape: type[Shape]) -> Callable[[Request], Awaitable[ASGIApp]]:
        """Returns the handler of a path, which streams an engine's response to the client."""

        async def answer(request: Request) -> ASGIApp:
            async def send_on(scope: Scope, receive: Receive, send: Send) -> None:
                await self._answer(request, path, shape, send)

            return send_on

        return answer

    async def _answer(self, request: Request, path: str, shape: type[Shape], send: Send) -> None:
        """Reads a request and forwards it to an engine. Aborts the request if the client disconnects."""
        bodies = request.scope["door"].bodies
        with bodies.memory() as memory:
            fields = read_request(
                await bodies.read(request, self._served.body_bytes, memory), shape, self._served.limits
            )
            content = engine_body(fields)
            beginning = fields.beginning() if len(self._workers.each) > 1 else ()
            del fields
            forward = asyncio.ensure_future(self._forward(path, content, beginning, send))
            leaving = asyncio.ensure_future(disconnect(request))
            try:
                tasks = (forward, leaving)
                await asyncio.wait(tasks, timeout=REQUEST_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if forward.done():
                    forward.result()
            finally:
                for task in (forward, leaving):
                    task.cancel()
                await asyncio.gather(forward, leaving, return_exceptions=True)

    async def _forward(self, path: str, content: bytes, beginning: Sequence[bytes], send: Send) -> None:
        """Forwards a request to a worker. If the worker dies before its response begins, tries another
        worker."""
        failed: list[Worker] = []
        name = hashlib.blake2b(content, digest_size=16).digest()
        for attempt in range(ATTEMPTS):
            if len(self._losses(name)) >= LOSSES:
                raise Refused(f"{LOSSES} model servers ended while they answered this request", 500)
            worker = self._workers.choose(beginning, failed)
            if worker and await self._send_to(worker, path, content, name, send):
                return
            failed += [worker] if worker else []
            await asyncio.sleep(AGAIN_SECONDS * attempt)
        raise Refused("no model server is up; try again", 503)

    def _losses(self, name: bytes) -> list[float]:
        """Returns the times within the last LOSS_SECONDS at which an engine died during a request."""
        since = time.monotonic() - LOSS_SECONDS
        losses = [moment for moment in self._lost.get(name, ()) if moment > since]
        if name in self._lost:
            self._lost[name] = losses
        return losses

    def _lose(self, name: bytes) -> None:
        self._lost[name] = [*self._losses(name), time.monotonic()]
        self._lost.move_to_end(name)
        while len(self._lost) > LOST:
            self._lost.popitem(last=False)

    async def _send_to(self, worker: Worker, path: str, content: bytes, name: bytes, send: Send) -> bool:
        """Returns whether the worker began a response. If the worker dies later, the client's connection is
        closed."""
        has_begun = False
        worker.load += 1
        try:
            async with self._client.stream(
                "POST", worker.url + path, content=content, headers=self._headers
            ) as answer:
                if answer.status_code in (401, 503):  # another engine took its port, or it is shutting down
                    worker.generates = False
                    return False
                kind = answer.headers.get("content-type", "application/json")
                head = [(b"content-type", kind.encode("latin-1"))]
                if "content-length" in answer.headers and "content-encoding" not in answer.headers:
                    head.append((b"content-length", answer.headers["content-length"].encode()))
                has_begun = True
                await send({"type": "http.response.start", "status": answer.status_code, "headers": head})
                async for piece in answer.aiter_bytes():
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
                if answer.is_success:
                    worker.mark_alive()
                return True
        except httpx.HTTPError as error:
            worker.generates = False
            if not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                self._lose(name)
            return has_begun
        finally:
            worker.load -= 1


def error_answer(error: Exception) -> Response:
    """Returns the error response in OpenAI's format."""
    status, text = (error.status, str(error)) if isinstance(error, Refused) else (500, "a fault: see the log")
    text += ": longer than the model's maximum context length" if status == 413 else ""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    record = {"message": " ".join(text.split()), "type": kind, "param": None, "code": status}
    return JSONResponse({"error": record}, status)
