"""Opens Ray for a training run on verl.

On one machine, verl starts Ray itself. On several nodes of a SLURM job, this module starts Ray. Ray's head
and verl run on the first node (`verl_head`). On each other node, a SLURM job step runs a Ray node
(`verl_node`). When one of these processes ends, the training run ends. The same command resumes the run.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from swelab.cluster import slurm
from swelab.configs.kinds.rl import Rl
from swelab.jobs.child_process import fault_line
from swelab.models.serving.server import free_port
from swelab.records import InputError, Record
from swelab.rl.engines.verl_machine import STORE_BYTES, logical_cpus

JOIN_SECONDS = 300.0
"""Seconds within which every node of the job must join Ray."""
STOP_SECONDS = 20.0
MAIN = "verl.trainer.main_ppo"
HEAD, NODE = "swelab.rl.engines.verl_head", "swelab.rl.engines.verl_node"


class OwnRay:
    """Ray that verl starts, or a Ray cluster that already runs at $RAY_ADDRESS."""

    def __init__(self, python: Path):
        self._python = python
        self.address = os.environ.get("RAY_ADDRESS", "")

    def command(self, private: str, words: Sequence[str]) -> list[str]:
        """Returns the command line that runs verl with the arguments `words`."""
        return [str(self._python), "-m", MAIN, *words]

    def fault(self) -> str:
        """Returns "", because we do not watch the processes of this Ray."""
        return ""


@dataclass
class JobRay:
    """Ray on the nodes of our SLURM job. This process runs on the first node. env: environment variables of
    verl's processes on every node. folder: folder for the logs of the nodes."""

    recipe: Rl
    python: Path
    env: Mapping[str, str]
    folder: Path
    nodes: Sequence[slurm.Node]
    _steps: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._host = socket.gethostbyname(self.nodes[0].address)
        self._port = free_port(self._host)

    @property
    def address(self) -> str:
        """Address of Ray's head, "host:port"."""
        return f"{self._host}:{self._port}"

    def command(self, private: str, words: Sequence[str]) -> list[str]:
        """Returns the command line that runs Ray's head and verl."""
        head = [*self._words(self.nodes[0]), "--head", f"--port={self._port}", "--include-dashboard=false"]
        head.append(f"--temp-dir={private}/ray")
        verl = [str(self.python), "-m", MAIN, *words]
        told = [len(self.nodes), self.address, JOIN_SECONDS, json.dumps(head), json.dumps(verl)]
        return [str(self.python), "-m", HEAD, *map(str, told)]

    def fault(self) -> str:
        """Returns a line that says where and why Ray has ended, or "" while Ray runs on all nodes."""
        for name, step in self._steps.items():
            if (status := step.poll()) is not None:
                said = [path for path in self._logs(name) if path.exists() and path.stat().st_size]
                why = fault_line(said[-1]) if said else "it said nothing"
                return f"node {name}: Ray ended with {status}: {why}; logs: {self._logs(name)[0]}"
        return ""

    def start(self) -> None:
        """Starts a SLURM job step on each other node. The steps wait for Ray's head."""
        for node in self.nodes[1:]:
            command = ["srun", f"--jobid={os.environ['SLURM_JOB_ID']}", "--nodes=1", "--ntasks=1"]
            command += ["--overlap", f"--nodelist={node.name}", "--mem=0", "--quiet"]
            command += [f"--cpus-per-task={self.recipe.job.cpus}"]
            command += [f"--gpus={gpus}"] if (gpus := self.recipe.job.gpus) else []
            with open(self._logs(node.name)[1], "ab") as log:
                self._steps[node.name] = step = subprocess.Popen(
                    [*command, sys.executable, "-m", NODE],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    env=self.env,
                    start_new_session=True,
                )
            words, log_path = [*self._words(node), f"--address={self.address}"], self._logs(node.name)[0]
            told: Record = {"words": words, "host": self._host, "port": self._port, "log": str(log_path)}
            told["seconds"] = JOIN_SECONDS
            assert step.stdin
            with suppress(BrokenPipeError):
                step.stdin.write(json.dumps(told).encode() + b"\n")
                step.stdin.flush()

    def stop(self) -> None:
        """Ends the SLURM job steps by closing their standard input. Kills steps that do not end in time."""
        for step in self._steps.values():
            assert step.stdin
            with suppress(BrokenPipeError):
                step.stdin.close()
        for step in self._steps.values():
            for end in (step.terminate, step.kill):
                try:
                    step.wait(STOP_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    end()
            step.wait()

    def _words(self, node: slurm.Node) -> list[str]:
        """Returns the command `ray start` for a node. The operating system chooses ports, because other jobs
        may run on the node."""
        address = socket.gethostbyname(node.address)
        words = [str(self.python.with_name("ray")), "start", "--block", "--disable-usage-stats"]
        words += [f"--node-ip-address={address}", "--min-worker-port=0", "--max-worker-port=0"]
        words += [f"--num-gpus={self.recipe.cluster.gpus}", f"--num-cpus={logical_cpus(self.recipe)}"]
        on_cpu = self.recipe.train.device == "cpu"
        return [*words, f"--object-store-memory={STORE_BYTES}"] if on_cpu else words

    def _logs(self, name: str) -> tuple[Path, Path]:
        """Returns two log files for a node: the log of Ray, and the log of the SLURM job step that runs
        Ray."""
        return self.folder / f"ray-{name}.log", self.folder / f"ray-{name}.srun.log"


@contextmanager
def open_ray(recipe: Rl, python: Path, env: Mapping[str, str], folder: Path) -> Iterator[OwnRay | JobRay]:
    """Opens Ray for the recipe's job. Raises InputError if the recipe needs several nodes, but this process
    is not in a SLURM job with exactly as many nodes. Raises SlurmError if SLURM does not list the nodes."""
    if recipe.job.nodes == 1 or os.environ.get("RAY_ADDRESS"):
        yield OwnRay(python)
        return
    if not os.environ.get("SLURM_JOB_ID"):
        what = "a SLURM job (snakemake ... --profile slurm), or Ray's head in $RAY_ADDRESS"
        raise InputError(f"job.nodes is {recipe.job.nodes}", expected=what)
    nodes = slurm.job_nodes()
    if len(nodes) != recipe.job.nodes:
        raise InputError(f"{len(nodes)} nodes in this SLURM job", expected=f"{recipe.job.nodes} (job.nodes)")
    running = JobRay(recipe, python, env, folder, nodes)
    try:
        running.start()
        yield running
    finally:
        running.stop()
