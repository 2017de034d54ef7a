"""A push to the hub: its requests, and the messages when it fails."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from swelab.files.hf_hub import HubError
from swelab.sharing.hub_upload import push

TOKEN = "hf_made_up"


class Hub(BaseHTTPRequestHandler):
    """Records requests. Makes repositories and accepts every card, refuses everything else."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.asked.append((self.path, self.headers.get("Authorization"), body))
        made = self.path in ("/api/repos/create", "/api/validate-yaml")
        address = f"http://127.0.0.1:{self.server.server_port}/datasets/me/mine"
        answer = json.dumps({"url": address} if made else {"error": "no room"}).encode()
        self.send_response(200 if made else 403)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_GET = do_POST

    def log_message(self, *_):
        """Says nothing."""


@pytest.fixture
def hub(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    yield server
    server.shutdown()
    server.server_close()


def test_a_private_repository_is_asked_for_and_a_refusal_is_one_line(hub, tmp_path):
    (tmp_path / "README.md").write_text("# mine\n")
    with pytest.raises(HubError) as told:
        push(tmp_path, "me/mine", "dataset")
    ((key, body),) = [(key, body) for path, key, body in hub.asked if path == "/api/repos/create"]
    wanted = json.loads(body)
    assert key == f"Bearer {TOKEN}"
    assert (wanted["organization"], wanted["name"], wanted["type"]) == ("me", "mine", "dataset")
    assert wanted.get("private") is True or wanted.get("visibility") == "private"
    assert "403" in str(told.value), told.value
    assert [path for path, _, _ in hub.asked if path.startswith("/api/datasets/me/mine/")]
    assert str(told.value).startswith("dataset me/mine: not pushed: ") and str(tmp_path) in str(told.value)
    assert "\n" not in str(told.value) and TOKEN not in str(told.value)
