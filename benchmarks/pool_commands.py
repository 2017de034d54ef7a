"""Starts the commands of a simulated host, as its engine would: in a process of its own.

A process that starts another stands still until that one runs. In an exec server its event loop would stand
still too, and a real one starts none: it speaks to an engine.
"""

import json
import os
import secrets
import signal
import socket
import socketserver
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from swelab.sandbox.protocol import SandboxLost

_HEAD = struct.Struct("!IQ")


class _Asked(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        asked = json.loads(self.rfile.readline())
        began = time.monotonic()
        started = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "bash", "-c", asked["command"]],
            cwd=asked["cwd"],
            env={**os.environ, **asked["env"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        try:
            output, late = started.communicate(timeout=asked["seconds"])[0], False
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            output, late = started.communicate()[0], True
        told = {"late": late, "returncode": started.returncode, "seconds": time.monotonic() - began}
        text = json.dumps(told).encode()
        self.wfile.write(_HEAD.pack(len(text), len(output)) + text)
        self.wfile.write(output)


class _Server(socketserver.ThreadingUnixStreamServer):
    request_queue_size = 1024
    daemon_threads = True


class Commands:
    """The process that starts the commands; it ends with this process."""

    def __init__(self) -> None:
        name = f"swelab-commands-{secrets.token_hex(16)}"
        self._address = f"\0{name}"
        words = [sys.executable, "-m", "benchmarks.pool_commands", name]
        self._process = subprocess.Popen(["setpriv", "--pdeathsig=KILL", *words], stdout=subprocess.PIPE)
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise OSError("no commands can be started")

    def run(
        self, command: str, cwd: Path, env: dict[str, str], seconds: float
    ) -> tuple[dict[str, Any], bytes]:
        """(returncode, late, seconds; the output) of a line of bash. Raises SandboxLost."""
        with socket.socket(socket.AF_UNIX) as taken:
            taken.connect(self._address)
            asked = {"command": command, "cwd": str(cwd), "env": env, "seconds": seconds}
            taken.sendall(json.dumps(asked).encode() + b"\n")
            with taken.makefile("rb") as told:
                head = told.read(_HEAD.size)
                if len(head) < _HEAD.size:
                    raise SandboxLost("the command was not started: its folder is gone")
                text, size = _HEAD.unpack(head)
                return json.loads(told.read(text)), told.read(size)


def main() -> None:
    with _Server(f"\0{sys.argv[1]}", _Asked) as server:
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
