"""The processes (ranks) that train a policy together. One command starts all of them on one machine.

Each rank receives commands from the training's main process over its own socket, and answers them. When the
main process closes its end or is killed, each rank exits at once.
"""

import argparse
import importlib
import os
import queue
import socket
import sys
import threading
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

from swelab.configs.kinds.rl import Rl
from swelab.records import Fault
from swelab.rl.learner import Learner

OPEN = "open"


@dataclass(frozen=True)
class LearnerArguments:
    """Arguments that open a learner; see `Learner`."""

    checkpoint: Path
    recipe: Rl
    start: Path | None


def main() -> int:
    """Starts all ranks, and waits until one of them ends. Returns the exit code of that rank."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--socket", required=True, help="socket of the main process")
    parser.add_argument("--ranks", type=int, required=True, help="number of processes")
    parser.add_argument("--threads", type=int, required=True, help="number of CPU threads per process")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True, help="device of the computation")
    args = parser.parse_args()
    # Imported once, before the fork of the ranks: these modules start no thread and use no GPU.
    for name in ("torch.distributed.fsdp", "transformers.models.auto.modeling_auto"):
        importlib.import_module(name)
    for rank in range(args.ranks):
        if not os.fork():
            try:
                torch.set_num_threads(args.threads)
                serve(args.socket, rank, args.ranks, args.device)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(1)
    return os.waitstatus_to_exitcode(os.wait()[1])


def serve(address: str, rank: int, ranks: int, device: str) -> None:
    """Runs the main process's commands until the main process ends. The first command opens a learner. Each
    later command calls a method of that learner."""
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(address)
        connection = Connection(line.detach())
    connection.send(rank)
    if device == "cuda":
        torch.cuda.set_device(rank)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    meeting = Path(os.environ["TMPDIR"], "meeting")
    backend = {"cpu": "gloo", "cuda": "nccl"}[device]
    dist.init_process_group(backend, init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    mesh = init_device_mesh(device, (ranks,))
    own = {"cpu": "cpu", "cuda": f"cuda:{rank}"}[device]
    learner: Learner | None = None
    for name, *arguments in messages(connection):
        answer: Any = None
        try:
            if name == OPEN:
                (opened,) = arguments
                learner = Learner(opened.checkpoint, opened.recipe, own, opened.start, mesh)
            else:
                answer = getattr(learner, name)(*arguments)
        except Fault as fault:
            answer = fault
        connection.send(answer)


def messages(connection: Connection) -> Iterator[Any]:
    """Yields the main process's messages. Exits this process at once when the main process ends."""
    received: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def listen() -> None:
        while True:
            try:
                received.put(connection.recv())
            except (EOFError, OSError):
                os._exit(1)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        yield received.get()


if __name__ == "__main__":
    sys.exit(main())
