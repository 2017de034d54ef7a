"""The process of a gate: `python -m swelab.models.serving.gate_server SETTINGS`.

SETTINGS is a JSON file that only this user can read: it holds the keys. Each line of standard input is a JSON
list that says which engines are up; when standard input ends, so does the gate.
"""

import asyncio
import json
import signal
import sys
from contextlib import suppress
from pathlib import Path

from swelab.http.run_server import run
from swelab.http.sockets import listen
from swelab.models.serving.engine import open_engine
from swelab.models.serving.gate import Gate, Served
from swelab.models.serving.request_shapes import Limits
from swelab.models.serving.workers import Workers
from swelab.records import InputError


async def _follow(workers: Workers) -> None:
    """Reads from standard input which engines are up; ends the server when that is closed."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        workers.set_up(json.loads(line))
    signal.raise_signal(signal.SIGTERM)


def main() -> None:
    """Serves until it is interrupted or standard input ends. Raises InputError: the port is taken."""
    settings = json.loads(Path(sys.argv[1]).read_bytes())
    engine = open_engine(settings["engine"])
    workers = Workers(settings["urls"], engine.generates, settings["engine_key"])
    workers.set_up(settings["up"])
    limits = Limits(settings["context_length"], settings["vocabulary"])
    gate = Gate(Served(settings["names"], limits, engine.shapes), workers, settings["engine_key"])
    tasks: list[asyncio.Future[None]] = []

    def start() -> None:
        tasks.extend(asyncio.ensure_future(each) for each in (gate.watch(), _follow(workers)))

    listener = listen(settings["host"], settings["port"])
    run(gate.app(settings["token"]), listener, on_ready=start, drain_seconds=settings["drain_seconds"])


if __name__ == "__main__":
    try:
        with suppress(KeyboardInterrupt):
            main()
    except InputError as error:
        sys.exit(f"InputError: {error}")
