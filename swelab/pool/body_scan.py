"""Big bodies of requests are looked at in a process of their own, and the server goes on meanwhile.

A thread would not do: a search through megabytes keeps the interpreter to itself until it has ended, and
whoever waits for input gets it back late, again and again.
"""

import asyncio
import contextlib
import json
import os
import struct
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from swelab.pool.json_bounds import examined
from swelab.records import Record
from swelab.sandbox.remote_protocol import NotReached

_HEAD = struct.Struct("!II")
_ROOT = Path(__file__).resolve().parents[2]
_NICE = 5


class BodyScan:
    """One process, started by the first big body; it looks at one body at a time and ends with us."""

    def __init__(self) -> None:
        self._turn, self._one = asyncio.Lock(), threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    async def fault(self, data: bytes, shape: Record) -> str:
        """What is wrong with a body; "" for nothing. Raises NotReached where the process ended."""
        async with self._turn:
            return await asyncio.to_thread(self._ask, data, json.dumps(shape).encode())

    def _ask(self, data: bytes, shape: bytes) -> str:
        with self._one:
            try:
                given, told = self._pipes()
                for part in (_HEAD.pack(len(shape), len(data)), shape, data):
                    given.write(part)
                given.flush()
                line = told.readline()
            except OSError:
                line = b""
            if not line.endswith(b"\n"):
                self._end()
                raise NotReached("the process that looks at big requests ended; try again")
            return str(json.loads(line))

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "swelab.pool.body_scan"],
                cwd=_ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,  # a Ctrl-C is for the server, which ends it
            )
        assert self._process.stdin and self._process.stdout
        return self._process.stdin, self._process.stdout

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None and process.stdin and process.stdout:
            process.kill()
            process.stdout.close()
            with contextlib.suppress(OSError):  # the process ended before it read all
                process.stdin.close()
            process.wait()

    def close(self) -> None:
        """End the process."""
        with self._one:
            self._end()


def scan(given: IO[bytes], told: IO[bytes]) -> None:
    """Answer until the other end is closed; the server may be killed at any moment."""
    shapes: dict[bytes, Record] = {}
    while len(head := given.read(_HEAD.size)) == _HEAD.size:
        shape_size, size = _HEAD.unpack(head)
        shape, data = given.read(shape_size), given.read(size)
        if len(data) < size:
            return
        _, fault = examined(data, shapes.setdefault(shape, json.loads(shape)))
        told.write(json.dumps(fault).encode() + b"\n")
        told.flush()


if __name__ == "__main__":
    os.nice(_NICE)
    scan(sys.stdin.buffer, sys.stdout.buffer)
