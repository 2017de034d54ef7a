"""Servers on two nodes of a real SLURM, with a fake GPU each, behind one gate; one of them is killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.attacks import until, writers
from tests.contract.slurm import needed_cluster
from tests.toy_checkpoint import make_checkpoint

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
ROOT = Path(__file__).resolve().parents[2]
IN_THE_JOB = """
import json, sys, time
from pathlib import Path
from swelab.configs.kinds.policy import Job
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models.serving import fleet as fleets
from swelab.models.chat.served_models import ChatModel
folder = Path(sys.argv[1])
seen, made = [], fleets.Fleet
fleets.Fleet = lambda *arguments: seen.append(made(*arguments)) or seen[-1]
scaffold = MiniLoop(action_regex="(?s)(.+)", format_error_template="", observation_template="",
                    system_template="", instance_template="", max_observation_chars=100)
sizes = dict(context_length=512, max_total_tokens=4096, max_running_requests=8)
job = Job(nodes=2, gpus=1)
def ask(endpoint, number):
    sampling = dict(temperature=0, max_tokens=12)
    history = [dict(role="user", content=f"f{number} must return {number}.")]
    return ChatModel(endpoint, scaffold, sampling).query(history)["content"]
def told(name, what):
    (folder / f"{name}.part").write_text(json.dumps(what))
    (folder / f"{name}.part").rename(folder / name)
with fleets.serve_fleet(folder / "toy", name="toy", job=job, log=folder / "server.log", **sizes) as endpoint:
    told("before", [ask(endpoint, number) for number in range(8)])
    while not (folder / "killed").exists():
        time.sleep(0.1)
    told("after", [ask(endpoint, number) for number in range(8)])
    while sum(server.starts for server in seen[0].servers) < 3 or seen[0].gate.generating() < 2:
        time.sleep(0.1)
    told("whole", [server.endpoint.url for server in seen[0].servers])
"""


def test_two_nodes_serve_as_one(tmp_path):
    make_checkpoint(tmp_path / "toy")
    (tmp_path / "job.py").write_text(IN_THE_JOB)
    with needed_cluster() as cluster:
        # As Snakemake's executor starts it: without the job's variables, but for its number.
        script = "for name in $(compgen -v SLURM_); do [ $name = SLURM_JOB_ID ] || unset $name; done\n"
        script += f"PYTHONPATH={ROOT} exec {sys.executable} {tmp_path}/job.py {tmp_path}\n"
        (tmp_path / "job.sh").write_text(f"#!/bin/bash\n{script}")
        options = ["--partition=gpu", "--gres=gpu:1", "--nodes=2", "--ntasks=2", "--cpus-per-task=2"]
        options += ["--mem=8000", f"--output={tmp_path}/log"]
        job = subprocess.run(
            ["sbatch", "--parsable", *options, f"--chdir={ROOT}", tmp_path / "job.sh"],
            env={**os.environ, **cluster.env}, capture_output=True, text=True, check=True,
        ).stdout.strip()  # fmt: skip

        def await_(name, seconds):
            ended = lambda: job not in cluster.jobs()  # noqa: E731
            assert until(lambda: (tmp_path / name).exists() or ended(), seconds), said()
            assert (tmp_path / name).exists(), said()
            return json.loads((tmp_path / name).read_text())

        def said():
            return "\n".join(f"{path.name}: {path.read_text()[-3000:]}" for path in tmp_path.glob("*log"))

        before = await_("before", 150)
        steps = cluster.ask("squeue", "--noheader", "--steps", "--format=%i %N").splitlines()
        assert {line.split()[1] for line in steps if line.startswith(f"{job}.")} >= {"g1", "g2"}
        (scheduler,) = [pid for pid, text in writers(tmp_path / "server1.log").items() if "scheduler" in text]
        os.kill(scheduler, signal.SIGKILL)
        (tmp_path / "killed").touch()
        assert await_("after", 60) == before and len(set(before)) > 1
        assert len(set(await_("whole", 120))) == 2
        assert until(lambda: job not in cluster.jobs(), 60), said()
        assert not writers(tmp_path / "server.log") and not writers(tmp_path / "server1.log")
        assert "model server 1: " in (tmp_path / "log").read_text()
