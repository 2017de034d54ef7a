"""A client of the OCI distribution API for digests, manifests, configs and layers of images.

The client verifies all content, and resumes downloads. It uses httpx instead of skopeo for two reasons.
First, cluster users who cannot install programs must be able to pull without a daemon. Second, an interrupted
download of a layer must resume where it stopped.
"""

import hashlib
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
from swelab.images.image_names import DEFAULT, DIGEST, Name
from swelab.patience import DOWNLOADS, Patience, repeat, retry_after
from swelab.records import sha256_file, shorten


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


LISTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)
MANIFESTS = (
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_ACCEPT = {"Accept": ", ".join(MANIFESTS + LISTS)}
_BIGGEST_DOCUMENT = 8 << 20

Descriptor = dict[str, Any]
"""A manifest's description of a layer or a config. The keys are mediaType, digest and size (bytes)."""


def compressed_bytes(manifest: dict[str, Any]) -> int:
    """Returns the compressed size of an image's layers in bytes."""
    return sum(int(layer["size"]) for layer in manifest["layers"])


class Registry:
    """Reads images from any registry through a Transport. Thread-safe. Faults are raised as ImageError."""

    def __init__(self, transport: Transport | None = None):
        self.transport = transport or Transport()

    def resolve(self, name: Name, architecture: str = "amd64") -> tuple[str, dict[str, Any]]:
        """Returns (digest, manifest) of the image for linux on `architecture`. Raises ImageError."""
        digest, document = self._manifest(name, name.digest or name.tag)
        if "manifests" in document:
            digest, document = self._manifest(name, _for_platform(document, architecture, name))
        try:
            parts = [document["config"], *document["layers"]]
            good = all(DIGEST.fullmatch(part["digest"]) and int(part["size"]) >= 0 for part in parts)
        except (KeyError, TypeError, ValueError):
            good = False
        if not good:
            raise ImageBroken(f"image {name}: its manifest is not that of a container image")
        return digest, document

    def _manifest(self, name: Name, reference: str) -> tuple[str, dict[str, Any]]:
        data = self._document(name, f"manifests/{reference}", _ACCEPT)
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if DIGEST.fullmatch(reference) and digest != reference:
            raise ImageBroken(f"image {name}: the manifest sent for {reference} has another digest")
        document = json_object(data)
        if document is None:
            raise ImageBroken(f"image {name}: its manifest is not JSON")
        return digest, document

    def _document(self, name: Name, path: str, headers: dict[str, str]) -> bytes:
        def read(response: httpx.Response) -> bytes:
            return read_document(response, name, _BIGGEST_DOCUMENT)

        return self.transport.patiently(name, lambda: self.transport.get(name, path, headers, read))

    def config(self, name: Name, manifest: dict[str, Any]) -> dict[str, Any]:
        """Returns the image's config document, with Env, WorkingDir, ... under "config".

        Raises ImageError.
        """
        digest = manifest["config"]["digest"]
        data = self._document(name, f"blobs/{digest}", {})
        found = json_object(data)
        if f"sha256:{hashlib.sha256(data).hexdigest()}" != digest or found is None:
            raise ImageBroken(f"image {name}: its config is not what its manifest says")
        return found

    def fetch(
        self, name: Name, layer: Descriptor, path: Path, on_bytes: Callable[[int], None] = lambda count: None
    ) -> None:
        """Downloads a layer to `path`, or continues a partial download, and checks the layer's digest.

        on_bytes: called with the number of bytes of each piece. Raises ImageError, OSError (disk full).
        """
        digest, size = layer["digest"], int(layer["size"])
        faults = 0

        def once() -> None:
            nonlocal faults
            have = path.stat().st_size if path.exists() else 0
            if have < size or not path.exists():
                headers = {"Range": f"bytes={have}-"} if have else {}
                self.transport.get(
                    name,
                    f"blobs/{digest}",
                    headers,
                    lambda response: _append(response, name, path, have, size, on_bytes),
                )
            if path.stat().st_size == size and f"sha256:{sha256_file(path)}" == digest:
                return
            path.unlink()
            faults += 1
            fault = ImageBroken(f"image {name}: the bytes sent as layer {digest} are others")
            if faults > 2:
                raise fault
            raise Again(fault)  # starts from zero: the partial file or a mirror's copy may be corrupt

        self.transport.patiently(name, once)


def _for_platform(index: dict[str, Any], architecture: str, name: Name) -> str:
    """Returns the digest of the manifest for linux/`architecture` in an image index."""
    try:
        offered = {
            part["digest"]: f"{part['platform']['os']}/{part['platform']['architecture']}"
            for part in index["manifests"]
            if "platform" in part and DIGEST.fullmatch(part["digest"])
        }
    except (KeyError, TypeError):
        raise ImageBroken(f"image {name}: its index is not that of a container image") from None
    for digest, platform in offered.items():
        if platform == f"linux/{architecture}":
            return str(digest)
    known = ", ".join(sorted(set(offered.values()) - {"unknown/unknown"})) or "nothing"
    raise ImageUnknown(f"image {name}: there is none for linux/{architecture}; there is one for {known}")


def _append(
    response: httpx.Response, name: Name, path: Path, have: int, size: int, on_bytes: Callable[[int], None]
) -> None:
    """Appends the response to the first `have` bytes. A response with the whole layer replaces them."""
    partial = response.status_code == 206
    room = size - have if partial else size
    with open(path, "ab" if partial else "wb") as file:
        try:
            for chunk in response.iter_raw(1 << 20):
                file.write(chunk[:room])
                on_bytes(len(chunk))
                room -= len(chunk)
                if room < 0:
                    break
        except httpx.TransportError as error:
            fault = RegistryDown(f"image {name}: a layer was cut off: {shorten(str(error))}")
            raise Again(fault, progressed=room < size - have) from None
