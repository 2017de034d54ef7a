"""A JSON service on loopback, for tests that need planned responses."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def json_service(answer):
    """A server while the block runs, with its address as `url`.

    answer: (path, headers, body or None) to (status, reply) or (status, reply, headers). A reply of bytes is
    sent as it is; status 0 ends the connection without one.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            text = self.rfile.read(int(self.headers["Content-Length"] or 0))
            status, reply, *headers = answer(self.path, self.headers, json.loads(text) if text else None)
            if not status:
                self.close_connection = True
                return
            data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers[0] if headers else {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.url = f"http://127.0.0.1:{server.server_port}"
    with running(server):
        yield server


@contextmanager
def running(server):
    """Runs a server in its own thread during the block, and closes it at the end."""
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
