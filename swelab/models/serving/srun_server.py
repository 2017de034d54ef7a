"""Runs a model server on another node of the current SLURM job, by srun, until its standard input is closed.

The command on that node is `python -m swelab.models.serving.srun_server`. It reads its settings from standard
input, because they contain the token, and writes its address to standard output.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from swelab.cluster.slurm import Node
from swelab.jobs.child_process import fault_line
from swelab.models import ServingError
from swelab.models.serving.server import Endpoint, open_log, serve
from swelab.records import Fault, Record

STOP_SECONDS = 30.0
POLL_SECONDS = 0.2


@contextmanager
def serve_on(node: Node, gpus: int, settings: Record, ending: Callable[[], bool]) -> Iterator[Endpoint]:
    """Runs `serve` on another node during the block. The server sees all `gpus` of the job, and `settings`
    select some. Raises ServingError with the message from the node."""
    log = Path(settings["log"]).with_suffix(".srun.log")
    command = ["srun", f"--jobid={os.environ['SLURM_JOB_ID']}", "--nodes=1", "--ntasks=1", "--overlap"]
    command += [f"--nodelist={node.name}", "--mem=0", "--quiet", *([f"--gpus={gpus}"] if gpus else [])]
    with open_log(log) as stream:
        step = subprocess.Popen(
            [*command, sys.executable, "-m", "swelab.models.serving.srun_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stream,
            start_new_session=True,
        )
    try:
        message = _converse(step, settings, ending)
        if "url" not in message:
            fault = message.get("fault") or f"srun ended: {fault_line(log)}; log: {log}"
            raise ServingError(f"node {node.name}: {fault}")
        names = ("engine", "admin_key")
        yield Endpoint(
            message["url"],
            settings["api_key"],
            settings["name"],
            alive=lambda: step.poll() is None,
            **{name: settings[name] for name in names},
        )
    finally:
        _end(step, settings["drain_seconds"])


def _converse(step: subprocess.Popen[bytes], settings: Record, ending: Callable[[], bool]) -> Record:
    """Sends the settings and returns the reply, or {} if the job step dies or `ending` becomes true."""
    assert step.stdin and step.stdout
    sent = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    with suppress(BrokenPipeError):
        step.stdin.write(json.dumps(sent).encode() + b"\n")
        step.stdin.flush()
    while not ending():
        if select.select([step.stdout], [], [], POLL_SECONDS)[0]:
            line = step.stdout.readline()
            return json.loads(line) if line.startswith(b"{") else {}
    return {}


def _end(step: subprocess.Popen[bytes], drain_seconds: float) -> None:
    """Closes the job step's input, so that the server finishes its requests. Then ends the step itself."""
    assert step.stdin and step.stdout
    with suppress(BrokenPipeError):
        step.stdin.close()
    for stop in (step.terminate, step.kill):
        try:
            step.wait(drain_seconds + STOP_SECONDS)
            break
        except subprocess.TimeoutExpired:
            stop()
    step.wait()
    step.stdout.close()


def main() -> int:
    """Serves until standard input is closed or the server dies."""
    settings: dict[str, Any] = json.loads(sys.stdin.readline())
    weights, log = Path(settings.pop("weights")), Path(settings.pop("log"))
    try:
        with serve(weights, log=log, **settings) as endpoint:
            print(json.dumps({"url": endpoint.url}), flush=True)
            while endpoint.alive():
                if select.select([sys.stdin], [], [], POLL_SECONDS)[0] and not sys.stdin.readline():
                    return 0
                time.sleep(POLL_SECONDS)
        return 1
    except Fault as fault:
        print(json.dumps({"fault": str(fault)}), flush=True)
        return 2


if __name__ == "__main__":
    sys.exit(main())
