"""Measures the latency of commands to a live pdb in each backend, compared with pdb over a plain pipe.

    .venv/bin/python -m benchmarks.sessions [--backends bubblewrap folder docker] [--rounds 5]

Prints one table, in milliseconds. `start` lasts from nothing to the first prompt. The other commands go to a
session that is stopped in a function. Rounds of the plain pipe and of the backends alternate, so that a busy
moment of the machine affects all of them. The docker backend needs an engine ($DOCKER_HOST) and the sandbox
image. The remote backend needs a pool ($SWELAB_POOL).
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.sandbox_latency import Kind, kinds
from swelab.agents.debugger.pdb_session import PdbSession
from swelab.agents.debugger.task_files import TaskFiles
from swelab.configs.kinds.debugger_settings import DebuggerSettings
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.console.terminal import run_script

PROGRAM = """def mean(values):
    total = 0
    for value in values:
        total += value
    return total / len(values)


print(mean(list(range(1000000))))
"""
PROMPT = b"(Pdb) "
LOOP = MiniLoop(system_template="", instance_template="", observation_template="", action_regex=".*")
COMMANDS = {"p": "p value, total", "n": "n", "w": "w"}
ROW = "{:<22} {:<6} {:>8} {:>8} {:>8} {:>10}"

Say = Callable[[str], object]
Session = Callable[[], AbstractContextManager[Say]]


@contextmanager
def bare(folder: Path) -> Iterator[Say]:
    """Yields a function that sends a line to pdb over a pipe, and reads the answer up to the prompt."""
    command = [sys.executable, "-u", "-m", "pdb", "mean.py"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    process = subprocess.Popen(command, cwd=folder, bufsize=0, **pipes)  # type: ignore[call-overload]

    def read_answer() -> bytes:
        answer = b""
        while not answer.endswith(PROMPT):
            answer += process.stdout.read(65536)
        return answer

    def say(line: str) -> bytes:
        process.stdin.write(line.encode() + b"\n")
        return read_answer()

    read_answer()
    try:
        yield say
    finally:
        process.kill()
        process.wait()
        process.stdin.close()
        process.stdout.close()


@contextmanager
def ours(kind: Kind, folder: Path) -> Iterator[Say]:
    """Yields the function `run` of the debugger agent's session, in a new sandbox."""
    with kind.start(folder) as box:
        pdb = PdbSession(box, LOOP, DebuggerSettings(), TaskFiles(box))
        try:
            yield pdb.run
        finally:
            pdb.close()


def measure(session: AbstractContextManager[Say], count: int, is_bare: bool) -> dict[str, list[float]]:
    """Returns the seconds of each command in one session, in order."""
    seconds: dict[str, list[float]] = {"start": []} | {name: [] for name in COMMANDS}
    began = time.perf_counter()
    with session as say:
        if not is_bare:
            began = time.perf_counter()
            say("start mean.py")
        seconds["start"].append(time.perf_counter() - began)
        say("b 4")
        say("c")
        for name, line in COMMANDS.items():
            for _ in range(count):
                began = time.perf_counter()
                answer = say(line)
                seconds[name].append(time.perf_counter() - began)
                assert answer and "No pdb session" not in str(answer), answer
    return seconds


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", default=["bubblewrap"])
    parser.add_argument("--commands", type=int, default=400, help="of each kind in a session")
    parser.add_argument("--rounds", type=int, default=5, help="sessions of each")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder)
        (tree / "mean.py").write_text(PROGRAM)
        sessions: dict[str, Session] = {"bare pipe": partial(bare, tree)}
        sessions |= {kind.name: partial(ours, kind, tree) for kind in kinds(args.backends)}
        seconds: dict[str, dict[str, list[float]]] = {name: {} for name in sessions}
        for _ in range(args.rounds):
            for name, session in sessions.items():
                for command, values in measure(session(), args.commands, name == "bare pipe").items():
                    seconds[name].setdefault(command, []).extend(values)
    print(f"{args.rounds} sessions of {args.commands} commands each; times in ms")
    print(ROW.format("through", "what", "p50", "p90", "p99", "x pipe p50"))
    for name, commands in seconds.items():
        for command, values in commands.items():
            cuts = statistics.quantiles(values, n=100, method="inclusive")
            cells = [f"{1000 * cuts[at]:.2f}" for at in (49, 89, 98)]
            pipe = statistics.median(seconds["bare pipe"][command])
            print(ROW.format(name, command, *cells, f"{statistics.median(values) / pipe:.2f}"))


if __name__ == "__main__":
    run_script(main)
