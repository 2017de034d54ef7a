"""The process of a gate, run as `python -m swelab.models.serving.gate_server SETTINGS`.

SETTINGS is a JSON file that contains the keys, so only this user can read it. Each line of standard input is
a JSON list of booleans that say which engines are up. The gate stops when standard input is closed.
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
from swelab.models.serving.gate import Gate, ServedModel
from swelab.models.serving.request_shapes import Limits
from swelab.models.serving.workers import Workers
from swelab.records import InputError


async def _follow(workers: Workers) -> None:
    """Reads from standard input which engines are up. Stops the server when standard input ends."""
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        workers.set_up(json.loads(line))
    signal.raise_signal(signal.SIGTERM)


def main() -> None:
    """Serves until an interrupt or the end of standard input. Raises InputError if the port is in use."""
    settings = json.loads(Path(sys.argv[1]).read_bytes())
    engine = open_engine(settings["engine"])
    workers = Workers(settings["urls"], engine.generates, settings["engine_key"])
    workers.set_up(settings["up"])
    limits = Limits(settings["context_length"], settings["vocabulary"])
    gate = Gate(ServedModel(settings["names"], limits, engine.shapes), workers, settings["engine_key"])
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
