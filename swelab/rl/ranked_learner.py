"""Trains a policy in several processes (ranks) on this machine. The recipe's `train.ranks` is the number of
ranks.

Rollouts, servers and journals stay in the main process. The main process starts the ranks, divides each batch
among them, and ends them. If the main process is killed, the ranks end too.
"""

import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any

from swelab.jobs.child_process import ChildProcess, fault_line, torch_environment
from swelab.records import Fault
from swelab.rl.batch_shares import TrainingSample, shares
from swelab.rl.rank_process import OPEN, LearnerArguments

STARTUP_SECONDS = 600
PROCESS = "swelab.rl.rank_process"


class RankLost(Fault):
    """A process of the learner has ended."""


class RankedLearner:
    """A learner on `ranks` processes, each with `threads` CPU threads, or with a GPU. See `learner.Trainee`.

    If the thread that opened the ranks ends, the ranks end too. address: the socket's address, which is part
    of the ranks' command line.
    """

    def __init__(self, opened: LearnerArguments, ranks: int, threads: int, device: str, log: Path):
        """Starts the ranks. Raises InputError as `Learner` does, and RankLost if a rank does not start."""
        self._settings, self._ranks, self._log = opened.recipe.train, ranks, log
        self._lines: list[Connection] = []
        sizes = {"ranks": ranks, "threads": threads, "device": device}
        # Not below TMPDIR: a socket's path must be short.
        with (
            tempfile.TemporaryDirectory(prefix="swelab-", dir="/tmp") as folder,
            socket.socket(socket.AF_UNIX) as listener,
            open(log, "ab") as stream,
        ):
            self.address = f"{folder}/ranks"
            listener.bind(self.address)
            listener.listen(ranks)
            argv = [sys.executable, "-m", PROCESS, "--socket", self.address]
            argv += [f"--{name}={value}" for name, value in sizes.items()]
            self._processes = ChildProcess(lambda _: argv, env=torch_environment(threads), log=stream)
            try:
                self._lines = self._accept(listener)
                self._all([(OPEN, opened)] * ranks)
            except BaseException:
                self.close()
                raise

    def train(self, batch: Sequence[TrainingSample]) -> dict[str, float]:
        """See `learner.Trainee`."""
        shared = shares(batch, self._settings.minibatches, self._settings.batch_tokens, self._ranks)
        found: dict[str, float] = self._all([("train_share", share) for share in shared])[0]
        return found

    def save(self, folder: Path) -> None:
        """See `learner.Trainee`."""
        self._all([("save", folder)] * self._ranks)

    def resume(self, folder: Path) -> None:
        """See `learner.Trainee`."""
        self._all([("resume", folder)] * self._ranks)

    def peak_mib(self) -> float:
        """See `learner.Trainee`. Returns the largest value among the ranks."""
        return max(float(found) for found in self._all([("peak_mib",)] * self._ranks))

    def close(self) -> None:
        """Ends the ranks. Further calls have no effect."""
        for line in self._lines:
            line.close()
        self._processes.stop(grace_seconds=0)

    def __enter__(self) -> "RankedLearner":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _accept(self, listener: socket.socket) -> list[Connection]:
        """Accepts a connection from each rank, and returns the connections in the order of ranks."""
        connections: dict[int, Connection] = {}
        listener.settimeout(0.5)
        ends = time.monotonic() + STARTUP_SECONDS
        while len(connections) < self._ranks:
            try:
                line = Connection(listener.accept()[0].detach())
                connections[line.recv()] = line
            except (TimeoutError, EOFError, OSError):
                if self._processes.poll() is not None or time.monotonic() > ends:
                    raise self._rank_lost() from None
        return [connections[rank] for rank in range(self._ranks)]

    def _all(self, orders: Sequence[object]) -> list[Any]:
        """Sends each rank its command, and returns the answers of all ranks. Raises the Fault of the first
        rank that failed, or RankLost."""
        answers: dict[Connection, Any] = {}
        try:
            for line, each in zip(self._lines, orders, strict=True):
                line.send(each)
            while len(answers) < self._ranks:
                waiting = [line for line in self._lines if line not in answers]
                answers |= {line: line.recv() for line in wait(waiting) if isinstance(line, Connection)}
        except (EOFError, OSError):
            raise self._rank_lost() from None
        for line in self._lines:
            if isinstance(answers[line], Fault):
                raise answers[line]
        return [answers[line] for line in self._lines]

    def _rank_lost(self) -> RankLost:
        self.close()
        said = fault_line(self._log)
        return RankLost(
            f"a rank of the learner has ended: {said}; log: {self._log}; the same command goes on"
        )
