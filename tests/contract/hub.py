"""A stand-in for the Hugging Face hub: the HTTP interface that downloads use, and its faults."""

import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.json_service import running as serving

LARGE = 1000
"""A file with at least this number of bytes is an LFS file."""


@dataclass
class Hub:
    """Repositories as {(kind, name): {path: bytes}} at one commit. `requests` contains (path, range)."""

    revision: str
    files: dict
    token: str = ""
    cut_after: int = 0  # bytes of a large file after which the connection is closed
    cuts: int = 0  # how often
    stall: bool = False  # instead of closing, the connection stays open and silent
    wrong: int = 0  # responses with wrong bytes
    failing: list = field(default_factory=list)  # status codes of the next downloads
    code: str = ""  # X-Error-Code of a refusal
    ranges: bool = True
    body: bytes = b""  # the response instead of the list of files
    requests: list = field(default_factory=list)
    url: str = ""
    stalled: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def gets(self, name):
        """Returns the byte ranges that were requested of a file; "" for the whole file."""
        return [asked for path, asked in self.requests if path.endswith(name)]


def entry(path, data):
    """Returns the entry of a file in the hub's list of files."""
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    listed = {"type": "file", "oid": blob, "size": len(data), "path": path}
    if len(data) >= LARGE:
        oid = hashlib.sha256(data).hexdigest()
        listed["lfs"] = {"oid": oid, "size": len(data), "pointerSize": 134}
    return listed


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_GET(self):
        self._answer()

    def _refuse(self, status, code="", **headers):
        self.send_response(status)
        if code:
            self.send_header("X-Error-Code", code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self):
        hub, path = self.hub, self.path.partition("?")[0]
        hub.requests.append((path, self.headers.get("Range", "")))
        if hub.token and self.headers.get("Authorization") != f"Bearer {hub.token}":
            return self._refuse(401, hub.code)
        if found := re.fullmatch(r"/api/(model|dataset)s/([^/]+/[^/]+)/tree/([^/]+)", path):
            kind, name, revision = found.groups()
            if (kind, name) not in hub.files:
                return self._refuse(404, "RepoNotFound")
            if revision != hub.revision:
                return self._refuse(404, "RevisionNotFound")
            listed = [entry(*item) for item in hub.files[kind, name].items()]
            half = "cursor" in self.path  # two pages, as the hub splits long lists
            page = listed[len(listed) // 2 :] if half else listed[: len(listed) // 2]
            body = hub.body or json.dumps(page).encode()
            self.send_response(200)
            if not half and not hub.body:
                self.send_header("Link", f'<{hub.url}{path}?recursive=true&cursor=2>; rel="next"')
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None
        found = re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        data = found and hub.files.get(("dataset" if found[1] else "model", found[2]), {}).get(found[4])
        if data is None:
            return self._refuse(404, "EntryNotFound")
        return self._send(found[4], data)

    def _send(self, path, data):
        hub, listed = self.hub, entry(path, data)
        if hub.failing:
            status = hub.failing.pop(0)
            return self._refuse(status, Retry_After="1") if status == 429 else self._refuse(status)
        asked = hub.ranges and re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        body = data[start:]
        self.send_response(206 if asked else 200)
        self.send_header("X-Repo-Commit", hub.revision)
        etag = listed["lfs"]["oid"] if "lfs" in listed else listed["oid"]
        self.send_header("ETag", f'"{etag}"')
        self.send_header("Accept-Ranges", "bytes")
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        large = len(data) >= LARGE
        if large and hub.wrong:
            hub.wrong -= 1
            body = bytes(body[:-1]) + bytes([body[-1] ^ 1])
        if large and hub.cuts and len(body) > hub.cut_after:
            hub.cuts -= 1
            self.wfile.write(body[: hub.cut_after])
            self.close_connection = True
            if hub.stall:
                self.wfile.flush()
                hub.stalled.set()
                hub.go_on.wait(600)
            return None
        self.wfile.write(body)
        return None


@contextmanager
def running(hub):
    """Serves `hub` on this machine. `url` is the value for HF_ENDPOINT."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    with serving(server):
        try:
            yield hub
        finally:
            hub.go_on.set()
