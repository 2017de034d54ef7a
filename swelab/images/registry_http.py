"""Sends requests to a registry, with retries. Handles tokens, redirects, rate limits and temporary faults."""

import json
import os
import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from swelab.images.errors import (
    AccessRefused,
    ImageBroken,
    ImageError,
    ImageUnknown,
    RateLimited,
    RegistryDown,
    RegistryUnreachable,
)
from swelab.images.image_names import DEFAULT, Name
from swelab.patience import DOWNLOADS, Patience, repeat, retry_after
from swelab.records import shorten


def account_for(name: Name) -> str:
    """Returns base64 of "user:password" for the image's registry, or "" if there is no account.

    Reads config.json in $DOCKER_CONFIG, by default ~/.docker. Does not run credential helpers, which are
    programs that store accounts.
    """
    folder = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker")
    try:
        known = json.loads((folder / "config.json").read_text(encoding="utf-8"))["auths"]
        for host in ("https://index.docker.io/v1/", DEFAULT) if name.registry == DEFAULT else (name.host,):
            if isinstance(account := known.get(host, {}).get("auth"), str):
                return account
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        pass
    return ""


T = TypeVar("T")
_LOOPBACK = re.compile(r"(localhost|127\.\d+\.\d+\.\d+|\[::1\])(:\d+)?")
_PARAMETER = re.compile(r'(\w+)="([^"]*)"')
_TIMEOUT = httpx.Timeout(60, connect=20)
_NEVER_ANSWERED = 15.0  # maximum seconds of retries at a host that has never answered


class Again(Exception):
    """One attempt failed, but a later attempt may succeed.

    after: seconds that the registry asks us to wait. progressed: whether some bytes arrived before the
    failure.
    """

    def __init__(self, fault: ImageError, after: float = 0, progressed: bool = False):
        self.fault, self.after, self.progressed = fault, after, progressed


class Transport:
    """Sends requests to registries. Thread-safe.

    patience: seconds without progress after which requests are not retried. rate_patience: the same if a
    registry responds "too many requests". Such quotas usually count over six hours. say: a function that is
    called with a message whenever all workers wait for a quota.
    """

    def __init__(
        self,
        patience: float = 120,
        rate_patience: float = 7 * 3600,
        say: Callable[[str], None] = lambda line: None,
    ):
        self.patience, self.rate_patience, self.say = patience, rate_patience, say
        self._client = httpx.Client(timeout=_TIMEOUT, follow_redirects=False)
        self._tokens: dict[tuple[str, str], str] = {}
        self._heard: set[str] = set()  # hosts that have answered
        self._hold: dict[str, float] = {}  # host -> time of the next request, by time.monotonic()
        self._lock = threading.Lock()

    def close(self) -> None:
        """Closes the connections."""
        self._client.close()

    def patiently(self, name: Name, once: Callable[[], T]) -> T:
        """Calls `once`, and retries when it raises `Again` (see `Patience`). Raises ImageError."""
        patience = Patience(DOWNLOADS)

        def attempt() -> T:
            self._await_host(name.host)
            return once()

        def pause(again: Again) -> float | None:
            if again.progressed:
                patience.renew()
            limited = isinstance(again.fault, RateLimited)
            limit = self.rate_patience if limited else self.patience
            if isinstance(again.fault, RegistryUnreachable):
                limit = min(limit, _NEVER_ANSWERED)
            wait = patience.next_pause(limit, again.after)
            if wait is None or not limited:
                return wait
            self._hold_host(name.host, wait)
            return 0.0

        try:
            return repeat(attempt, Again, pause)
        except Again as again:
            raise again.fault from None

    def _hold_host(self, host: str, wait: float) -> None:
        """Makes all workers wait until a registry's quota allows requests again."""
        with self._lock:
            until = time.monotonic() + wait
            if until > self._hold.get(host, 0) + 1:
                self.say(f"{host} allows no more requests for now; next try in {wait:.0f} s")
            self._hold[host] = max(self._hold.get(host, 0), until)

    def _await_host(self, host: str) -> None:
        while (wait := self._hold.get(host, 0) - time.monotonic()) > 0:
            time.sleep(wait + random.uniform(0, 0.1))

    def get(self, name: Name, path: str, headers: dict[str, str], read: Callable[[httpx.Response], T]) -> T:
        """Sends a GET below the image's repository, with a token if the registry requires a token.

        read: returns the result from the response. Raises ImageError, Again.
        """
        url = f"{_scheme(name.host)}://{name.host}/v2/{name.repository}/{path}"
        key = (name.host, name.repository)
        for last in (False, True):
            sent = {"Authorization": self._tokens[key]} if key in self._tokens else {}
            with self._answer(name, url, {**headers, **sent}) as response:
                if response.status_code != 401 or last:
                    check_response(response, name, path)
                    return read(response)
                challenge = response.headers.get("WWW-Authenticate", "")
            self._tokens[key] = self._authorize(name, challenge)
        raise AssertionError("the second round returns or raises")

    @contextmanager
    def _answer(self, name: Name, url: str, headers: dict[str, str]) -> Iterator[httpx.Response]:
        """Yields the response after redirects.

        The token is sent only to the registry, not to the targets of redirects.
        """
        try:
            for _ in range(6):
                with self._client.stream("GET", url, headers=headers) as response:
                    self._heard.add(httpx.URL(url).netloc.decode())
                    if not response.is_redirect or response.next_request is None:
                        yield response
                        return
                    target = response.next_request.url
                if target.netloc != httpx.URL(url).netloc:
                    headers = {key: value for key, value in headers.items() if key != "Authorization"}
                url = str(target)
        except (httpx.TransportError, httpx.InvalidURL) as error:
            said = shorten(str(error)) or type(error).__name__
            host = httpx.URL(url).netloc.decode() if not isinstance(error, httpx.InvalidURL) else url
            kind = RegistryDown if host in self._heard else RegistryUnreachable
            raise Again(kind(f"image {name}: {host} does not answer: {said}")) from None
        raise RegistryDown(f"image {name}: {name.host} redirects without end")

    def _authorize(self, name: Name, challenge: str) -> str:
        """Returns the Authorization header that answers a challenge. Raises ImageError, Again."""
        kind, _, rest = challenge.partition(" ")
        account = account_for(name)
        if kind.lower() == "basic" and account:
            return f"Basic {account}"
        parameters = dict(_PARAMETER.findall(rest))
        realm = parameters.get("realm", "")
        if kind.lower() != "bearer" or not realm.startswith(("https://", "http://")):
            raise AccessRefused(f"image {name}: {name.host} wants an account; log in to it with docker login")
        asked = {"scope": f"repository:{name.repository}:pull"}
        if parameters.get("service"):
            asked["service"] = parameters["service"]
        safe = realm.startswith("https://") or _LOOPBACK.fullmatch(httpx.URL(realm).netloc.decode())
        headers = {"Authorization": f"Basic {account}"} if account and safe else {}
        with self._answer(name, str(httpx.URL(realm, params=asked)), headers) as response:
            check_response(response, name, "token for it")
            found = json_object(response.read()) or {}
        token = found.get("token") or found.get("access_token")
        if not isinstance(token, str):
            raise AccessRefused(f"image {name}: {name.host} gave no token")
        return f"Bearer {token}"


def _scheme(host: str) -> str:
    """Returns the URL scheme: https, or http for a registry on this machine, as Docker allows."""
    return "http" if _LOOPBACK.fullmatch(host) else "https"


def check_response(response: httpx.Response, name: Name, what: str) -> None:
    """Raises an error if a response does not have the content.

    The error is Again if a retry may help, otherwise ImageError.
    """
    code, host = response.status_code, name.host
    if code in (200, 206):
        return
    text = _message(response)
    if code == 429 or "toomanyrequests" in text.lower():
        fault = RateLimited(f"image {name}: {host} allows no more pulls for now: {text}")
        raise Again(fault, retry_after(response.headers) or 0.0)
    if code in (401, 403):
        raise AccessRefused(f"image {name}: {host} refuses access: {text}")
    if code == 404:
        raise ImageUnknown(f"image {name}: {host} has no {what}")
    down = RegistryDown(f"image {name}: {host} answers {code}: {text}")
    if code >= 500 or code in (408, 425):
        raise Again(down, retry_after(response.headers) or 0.0)
    raise down


def _message(response: httpx.Response) -> str:
    try:
        data = response.read()[:2000]
    except httpx.HTTPError:
        data = b""
    errors = (json_object(data) or {}).get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        return shorten(f"{errors[0].get('code', '')} {errors[0].get('message', '')}")
    return shorten(data.decode(errors="replace")) or f"status {response.status_code}"


def read_document(response: httpx.Response, name: Name, most: int) -> bytes:
    """Returns a complete response of at most `most` bytes. Raises ImageBroken, Again."""
    data = b""
    try:
        for chunk in response.iter_raw():
            data += chunk
            if len(data) > most:
                raise ImageBroken(f"image {name}: a manifest or config of more than {most} bytes")
    except httpx.TransportError as error:
        raise Again(RegistryDown(f"image {name}: cut off: {shorten(str(error))}")) from None
    return data


def json_object(data: bytes) -> dict[str, Any] | None:
    """Returns `data` as a JSON object, or None if it is not a JSON object."""
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
