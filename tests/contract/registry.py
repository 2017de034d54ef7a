"""A real registry on loopback, a client that pushes images to it, and a proxy that causes faults."""

import gzip
import hashlib
import io
import json
import secrets
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx

from swelab.models.serving.server import free_port
from tests.contract.attacks import PATIENCE, until
from tests.json_service import running

PROGRAM = "docker-registry"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


@contextmanager
def running_registry(folder: Path) -> Iterator["Hub"]:
    """Runs Debian's docker-registry over an empty `folder` during the block."""
    for _ in range(10):  # another process may take the port before the registry does
        host, mark = f"127.0.0.1:{free_port()}", secrets.token_hex()
        server = _started(folder, host, mark)
        try:
            assert until(lambda: server.poll() is not None or _answers(host, mark)), _log(folder)  # noqa: B023
            if server.poll() is None:
                yield Hub(host)
                return
            assert "address already in use" in _log(folder), _log(folder)
        finally:
            server.terminate()
            server.wait()
    raise AssertionError("no port is free")


def _started(folder: Path, host: str, mark: str) -> subprocess.Popen[bytes]:
    """Starts the registry. Its responses have `mark` in a header."""
    recipe = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder)}},
        "http": {"addr": host, "headers": {"X-Mark": [mark]}},
        "log": {"level": "error"},
    }
    (folder / "config.yml").write_text(json.dumps(recipe))
    with open(folder / "log", "wb") as log:
        command = [PROGRAM, "serve", str(folder / "config.yml")]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


def _answers(host: str, mark: str) -> bool:
    """Returns whether this registry responds at `host`, and not another server."""
    try:
        answer = httpx.get(f"http://{host}/v2/", timeout=PATIENCE, trust_env=False)
    except httpx.HTTPError:
        return False
    return answer.status_code == 200 and answer.headers.get("X-Mark") == mark


def _log(folder: Path) -> str:
    return (folder / "log").read_text()


def has_registry() -> bool:
    """Returns whether Debian's package docker-registry is installed."""
    return shutil.which(PROGRAM) is not None


class Hub:
    """Pushes to the registry at `host`."""

    def __init__(self, host: str):
        self.host = host

    def blob(self, repository: str, data: bytes) -> dict:
        """Uploads a blob. Returns its descriptor without a media type."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        place = httpx.post(f"http://{self.host}/v2/{repository}/blobs/uploads/", timeout=PATIENCE).headers[
            "Location"
        ]
        answer = httpx.put(
            httpx.URL(place).copy_merge_params({"digest": digest}), content=data, timeout=PATIENCE
        )
        assert answer.status_code == 201, answer.text
        return {"digest": digest, "size": len(data)}

    def manifest(self, repository: str, tag: str, document: dict) -> dict:
        """Uploads a manifest under a tag or a digest. Returns its descriptor."""
        data = json.dumps(document).encode()
        kind = document["mediaType"]
        answer = httpx.put(
            f"http://{self.host}/v2/{repository}/manifests/{tag}",
            content=data,
            headers={"Content-Type": kind},
            timeout=PATIENCE,
        )
        assert answer.status_code == 201, answer.text
        return {"mediaType": kind, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}

    def image(
        self, repository: str, layers: list[bytes], tag: str = "latest", config: dict | None = None
    ) -> str:
        """Pushes an image of compressed layers. Returns its digest."""
        document = {
            "architecture": "amd64",
            "os": "linux",
            "config": config or {"Env": ["PATH=/usr/bin:/bin", "COLOUR=blue"], "WorkingDir": "/testbed"},
            "rootfs": {"type": "layers", "diff_ids": [_diff_id(layer) for layer in layers]},
        }
        kind = "application/vnd.oci.image.config.v1+json"
        return self.manifest(
            repository,
            tag,
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST,
                "config": {"mediaType": kind, **self.blob(repository, json.dumps(document).encode())},
                "layers": [{"mediaType": LAYER, **self.blob(repository, layer)} for layer in layers],
            },
        )["digest"]


def _diff_id(layer: bytes) -> str:
    data = gzip.decompress(layer) if layer[:2] == b"\x1f\x8b" else layer
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def entry(name: str, **fields) -> tarfile.TarInfo:
    """Returns a tar entry. fields: attributes of TarInfo."""
    made = tarfile.TarInfo(name)
    made.mode = 0o644
    for key, value in fields.items():
        setattr(made, key, value)
    return made


def tar(*entries: tuple[tarfile.TarInfo, bytes] | tarfile.TarInfo) -> bytes:
    """Returns an uncompressed tar. An entry with content is a pair."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for item in entries:
            made, data = item if isinstance(item, tuple) else (item, b"")
            made.size = len(data)
            archive.addfile(made, io.BytesIO(data))
    return out.getvalue()


def layer(*entries: tuple[tarfile.TarInfo, bytes] | tarfile.TarInfo) -> bytes:
    """A gzip layer."""
    return gzip.compress(tar(*entries), mtime=0)


def files(**contents: str) -> bytes:
    """Returns a gzip layer of regular files. "__" in a keyword stands for "/"."""
    return layer(*((entry(name.replace("__", "/")), text.encode()) for name, text in contents.items()))


Fault = Callable[["Answer"], bool]
"""A function that sees each request. It returns True if it has sent the response itself."""


class Answer(BaseHTTPRequestHandler):
    """Handles one request through the proxy."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Sends the response of the proxy's fault, or else the registry's response."""
        self.server.requests.append((self.path, dict(self.headers)))  # type: ignore[attr-defined]
        if self.server.fault(self):  # type: ignore[attr-defined]
            return
        self.relay()

    def relay(self, cut_after: int | None = None, flip: bool = False) -> None:
        """Forwards the registry's response.

        It may be cut after some bytes, or have its first byte changed.
        """
        sent = {
            key: ", ".join(self.headers.get_all(key, []))
            for key in ("Accept", "Range")
            if key in self.headers
        }
        got = httpx.get(f"http://{self.server.hub}{self.path}", headers=sent, timeout=PATIENCE)  # type: ignore[attr-defined]
        body = bytes([got.content[0] ^ 1]) + got.content[1:] if flip else got.content
        self.send_response(got.status_code)
        for key, value in got.headers.items():
            if key.lower() in ("content-type", "content-length", "content-range", "www-authenticate"):
                self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body if cut_after is None else body[:cut_after])
        if cut_after is not None:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True

    def answer(self, status: int, headers: dict[str, str] | None = None, body: bytes = b"") -> None:
        """Sends a response that the proxy itself makes."""
        self.send_response(status)
        for key, value in {**(headers or {}), "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Prints nothing."""


@contextmanager
def faulty_proxy(hub: str, fault: Fault) -> Iterator[ThreadingHTTPServer]:
    """Runs a proxy in front of the registry at `hub`.

    It has `host` and `requests`, a list of (path, headers).
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    server.hub, server.fault, server.requests = hub, fault, []  # type: ignore[attr-defined]
    server.host = f"127.0.0.1:{server.server_address[1]}"  # type: ignore[attr-defined]
    with running(server):
        yield server
