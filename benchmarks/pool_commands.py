"""Starts the commands of a simulated host in a separate process, as a container engine would.

A process is blocked while it starts another process. This would also block the event loop of an exec server.
A real exec server starts no processes, because it only sends requests to an engine.
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


class _CommandRequest(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        request = json.loads(self.rfile.readline())
        began = time.monotonic()
        started = subprocess.Popen(
            ["setpriv", "--pdeathsig=KILL", "bash", "-c", request["command"]],
            cwd=request["cwd"],
            env={**os.environ, **request["env"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            process_group=0,
        )
        try:
            output, late = started.communicate(timeout=request["seconds"])[0], False
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGKILL)
            output, late = started.communicate()[0], True
        result = {"late": late, "returncode": started.returncode, "seconds": time.monotonic() - began}
        text = json.dumps(result).encode()
        self.wfile.write(_HEAD.pack(len(text), len(output)) + text)
        self.wfile.write(output)


class _Server(socketserver.ThreadingUnixStreamServer):
    request_queue_size = 1024
    daemon_threads = True


class Commands:
    """The process that starts the commands. It ends when this process ends."""

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
        """Runs a line of bash. Returns ({returncode, late, seconds}, output). Raises SandboxLost."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(self._address)
            request = {"command": command, "cwd": str(cwd), "env": env, "seconds": seconds}
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as reply:
                head = reply.read(_HEAD.size)
                if len(head) < _HEAD.size:
                    raise SandboxLost("the command was not started: its folder is gone")
                text, size = _HEAD.unpack(head)
                return json.loads(reply.read(text)), reply.read(size)


def main() -> None:
    with _Server(f"\0{sys.argv[1]}", _CommandRequest) as server:
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
