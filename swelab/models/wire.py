"""An HTTP transport that bounds how long and how large an answer may be, however slowly it comes."""

import time
from collections.abc import Iterator

import httpx

LARGEST_BYTES = 32 << 20


class _Stream(httpx.SyncByteStream):
    def __init__(self, stream: httpx.SyncByteStream, request: httpx.Request, ends: float):
        self._stream, self._request, self._ends = stream, request, ends

    def __iter__(self) -> Iterator[bytes]:
        left = LARGEST_BYTES
        for part in self._stream:
            left -= len(part)
            if left < 0:
                raise httpx.ReadError(f"an answer of over {LARGEST_BYTES >> 20} MiB", request=self._request)
            if time.monotonic() > self._ends:
                raise httpx.ReadTimeout("an answer that does not end", request=self._request)
            yield part

    def close(self) -> None:
        self._stream.close()


class Bounded(httpx.BaseTransport):
    """`inner`, whose answers end within `seconds` and LARGEST_BYTES, or are an httpx.TransportError."""

    def __init__(self, inner: httpx.BaseTransport, seconds: float):
        self._inner, self._seconds = inner, seconds

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        ends = time.monotonic() + self._seconds
        response = self._inner.handle_request(request)
        assert isinstance(response.stream, httpx.SyncByteStream)
        response.stream = _Stream(response.stream, request, ends)
        return response

    def close(self) -> None:
        self._inner.close()
