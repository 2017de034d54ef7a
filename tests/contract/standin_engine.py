"""An inference engine of HTTP only: sglang's paths and shapes, with responses that a test sets."""

import asyncio
import json
import socket
import threading
import time

import uvicorn

KEY = "the engine's key"


class StandinEngine:
    """Serves at `url` in a thread.

    `seen` contains (path, body) of each request, `cut` the clients that left. seconds: duration of a
    response. sound: whether generation works. `begun` is set when a request arrives. fatal: words in a
    request that make it close all connections.
    """

    def __init__(self, name="a"):
        self._place = socket.socket()  # holds the port, so that no other program gets it
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", 0))
        self.name, self.port = name, self._place.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.seen, self.cut, self.most = [], 0, 0
        self.seconds, self.sound, self.status = 0.0, True, 200
        self.fatal = None
        self.begun = threading.Event()
        self._running = 0
        self.start()

    def start(self):
        """Starts to listen, always at the same address."""
        settings = {"log_level": "critical", "lifespan": "off", "timeout_graceful_shutdown": 1}
        self._server = uvicorn.Server(uvicorn.Config(self, "127.0.0.1", self.port, **settings))
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.01)

    def stop(self):
        """Ends as a killed engine does: requests are cut off without a response."""
        cut = lambda: [each.transport.abort() for each in self._server.server_state.connections]  # noqa: E731
        self._loop.call_soon_threadsafe(cut)
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    async def __call__(self, scope, receive, send):
        self._loop = asyncio.get_running_loop()
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        shown = dict(scope["headers"]).get(b"authorization") == f"Bearer {KEY}".encode()
        if scope["path"] == "/health_generate":
            await self._send(send, 200 if self.sound else 503, b"")
            return
        self.seen.append((scope["path"], json.loads(body) if body else None))
        self.begun.set()
        if self.fatal and self.fatal.encode() in body:
            for each in list(self._server.server_state.connections):
                each.transport.abort()
            return
        if not shown:
            await self._send(send, 401, b"")
            return
        self._running += 1
        self.most = max(self.most, self._running)
        work = asyncio.ensure_future(self._answer(send, json.loads(body)))
        gone = asyncio.ensure_future(receive())
        done, _ = await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
        self.cut += work not in done
        for task in (work, gone):
            task.cancel()
        self._running -= 1

    async def _answer(self, send, asked):
        if not asked.get("stream"):
            await asyncio.sleep(self.seconds)
            await self._send(send, self.status, json.dumps({"by": self.name, "asked": asked}).encode())
            return
        head = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        for number in range(3):
            text = f"data: {number}\n\n".encode()
            await send({"type": "http.response.body", "body": text, "more_body": True})
            await asyncio.sleep(self.seconds)
        await send({"type": "http.response.body", "body": b"data: [DONE]\n\n"})

    async def _send(self, send, status, body):
        head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": head})
        await send({"type": "http.response.body", "body": body})
