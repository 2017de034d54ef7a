"""Limits the size and duration of HTTP responses, even if they arrive very slowly."""

import time
from collections.abc import Iterator

import httpx

LARGEST_BYTES = 32 << 20
ANSWER_SECONDS = 900


class _Stream(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, request: httpx.Request):
        self._stream, self._request = stream, request

    def __iter__(self) -> Iterator[bytes]:
        left, ends = LARGEST_BYTES, time.monotonic() + ANSWER_SECONDS
        for part in self._stream:
            left -= len(part)
            if left < 0:
                raise httpx.ReadError(f"an answer of over {LARGEST_BYTES >> 20} MiB", request=self._request)
            if time.monotonic() > ends:
                raise httpx.ReadTimeout("an answer that does not end", request=self._request)
            yield part

    def close(self) -> None:
        """Closes the connection's stream."""
        self._stream.close()


def _bound(response: httpx.Response) -> None:
    if isinstance(response.stream, httpx.SyncByteStream):
        response.stream = _Stream(response.stream, response.request)


def bounded_client() -> httpx.Client:
    """Returns an HTTP client that limits the size and duration of responses.

    A body may have LARGEST_BYTES, and may take ANSWER_SECONDS after the response's head. Beyond that an
    httpx.TransportError is raised. The client follows no redirects, so that a key is sent only to the given
    address.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=64)
    return httpx.Client(limits=limits, timeout=ANSWER_SECONDS, event_hooks={"response": [_bound]})
