"""A TCP proxy in front of a server that can be cut off or slowed down."""

import contextlib
import socket
import threading
import time
from urllib.parse import urlsplit


class Cable:
    """Forwards TCP to a server.

    While `cut` is set it forwards nothing and closes nothing. `delay` is in seconds.
    """

    def __init__(self, url):
        place = urlsplit(url)
        self._target = place.hostname, place.port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cut, self.delay, self._open = False, 0.0, []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near):
        self._hold()
        with contextlib.suppress(OSError):
            far = socket.create_connection(self._target)
            self._open += [near, far]
            threading.Thread(target=self._carry, args=(near, far), daemon=True).start()
            self._carry(far, near)
        near.close()

    def _hold(self):
        while self.cut:
            time.sleep(0.02)

    def _carry(self, source, target):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(self.delay)
                self._hold()
                target.sendall(data)
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.cut = False
        self._listener.close()
        for end in self._open:
            end.close()
