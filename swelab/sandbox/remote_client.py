"""Sends requests to a pool server, and repeats requests that got no response."""

import os
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any

import httpx

from swelab.http.sockets import KEEPALIVE
from swelab.patience import POOL, Patience, repeat
from swelab.sandbox.protocol import BackendMissing, EngineDown
from swelab.sandbox.remote_protocol import BYTES, REQUEST, NotReached, header, told_error

_CONNECT_SECONDS = 10.0
_SHORT_SECONDS = 60.0
_CUT_OFF = (httpx.ReadError, httpx.RemoteProtocolError, httpx.WriteError)
_UNANSWERED = (httpx.TransportError, NotReached)
_REACHED_SECONDS = 5.0


class PoolClient:
    """An HTTP client of one pool server. It repeats requests that got no response."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        transport = httpx.HTTPTransport(
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=60),
            verify=_trust(os.environ.get("SWELAB_POOL_CA")),
            socket_options=KEEPALIVE,
        )
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"},
            transport=transport,
            trust_env=False,
        )

    def ask(
        self,
        path: str,
        body: dict[str, Any],
        *,
        seconds: float = _SHORT_SECONDS,
        patience: float = 0.0,
        data: Callable[[], Iterable[bytes] | bytes] | None = None,
    ) -> httpx.Response:
        """Sends a POST request and returns the response. With `data`, `body` is sent in a header.

        seconds: maximum time without a byte from the server. patience: seconds for which a request without a
        response is repeated. Raises EngineDown if no response arrives. Raises the errors that the server
        reports.
        """
        pauses, began = Patience(POOL), time.monotonic()

        def once() -> httpx.Response:
            nonlocal began
            began = time.monotonic()
            return self._once(path, body, seconds, data)

        def pause(error: Exception) -> float | None:
            if isinstance(error, _CUT_OFF) and time.monotonic() - began > _REACHED_SECONDS:
                pauses.renew()  # the server had accepted the request, so `patience` starts again
            return pauses.next_pause(patience)

        try:
            return repeat(once, _UNANSWERED, pause)
        except _UNANSWERED as error:
            said = str(error) or type(error).__name__
            raise EngineDown(f"the pool at {self.url} cannot do {path} now: {said}") from None

    def _once(self, path: str, body: dict[str, Any], seconds: float, data: Any) -> httpx.Response:
        timeout = httpx.Timeout(seconds, connect=_CONNECT_SECONDS, pool=None)
        text = header(body)
        if data is None:
            sent: Any = text.encode()
            headers = {"Content-Type": "application/json", "Accept": f"{BYTES}, application/json"}
        else:
            sent, headers = data(), {"Content-Type": BYTES, REQUEST: text}
        answer = self._client.post(path, content=sent, headers=headers, timeout=timeout)
        if answer.status_code == 200:
            return answer
        try:
            record = answer.json()
        except ValueError:
            record = None
        raise told_error(answer.status_code, record)


def _trust(path: str | None) -> ssl.SSLContext | bool:
    try:
        return ssl.create_default_context(cafile=path) if path else True
    except OSError as error:
        raise BackendMissing(f"backend remote: $SWELAB_POOL_CA {path} cannot be used: {error}") from None
