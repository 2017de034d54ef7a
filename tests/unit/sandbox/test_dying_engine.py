"""An engine that dies in the middle of a response."""

import socketserver
import threading
from http.server import BaseHTTPRequestHandler

import pytest

from swelab.sandbox import EngineDown
from swelab.sandbox.docker_engine import DockerEngine


class DiesWhileItAnswers(BaseHTTPRequestHandler):
    """Answers a ping. Of any other response it sends only the beginning."""

    def do_GET(self):
        self.send_response(200)
        if self.path.endswith("/_ping"):
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"OK")
        else:
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()

    do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def engine(monkeypatch):
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), DiesWhileItAnswers) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{server.server_address[1]}")
        yield DockerEngine()
        server.shutdown()


def test_half_an_answer_read_piece_by_piece_is_an_engine_that_is_down(engine):
    with pytest.raises(EngineDown, match="loading: the engine at tcp://127.0.0.1"), engine.request("loading"):
        list(engine.api.load_image(b""))
