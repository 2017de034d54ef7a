"""Servers on two nodes of a real SLURM, with a fake GPU each, behind one gate. One server is killed."""

import json
import os
import signal
import subprocess
import sys

import pytest

from swelab.models.serving.server import free_port
from swelab.records import read_json, read_jsonl
from tests.conftest import ROOT, make_repos, make_task, run_program
from tests.contract.attacks import until, writers
from tests.contract.slurm import needed_cluster
from tests.toy_checkpoint import make_checkpoint

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
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
        # starts as Snakemake's executor does: without the job's variables, except its number
        script = "for name in $(compgen -v SLURM_); do [ $name = SLURM_JOB_ID ] || unset $name; done\n"
        script += f"PYTHONPATH={ROOT} exec {sys.executable} {tmp_path}/job.py {tmp_path}\n"
        (tmp_path / "job.sh").write_text(f"#!/bin/bash\n{script}")
        options = ["--partition=gpu", "--gres=gpu:1", "--nodes=2", "--ntasks=2", "--cpus-per-task=2"]
        options += ["--mem=8000", f"--output={tmp_path}/log"]
        job = run_program(
            ["sbatch", "--parsable", *options, f"--chdir={ROOT}", tmp_path / "job.sh"],
            env={**os.environ, **cluster.env},
            check=True,
        ).stdout.strip()

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


TASKS = 24
SCAFFOLD = """
system_template: ""
instance_template: "{{task}}"
observation_template: "{{output.output}}"
format_error_template: again
action_regex: "(?s)(.+)"
step_limit: 4
max_observation_chars: 100
limits: {wall_seconds: 20, cpu_seconds: 20}
"""
"""Each response of the toy model counts as a command. Each attempt has four commands."""


@pytest.fixture
def launched(tmp_path):
    """Returns (cluster, job, port, environment) of a serving fleet that SWE-RL's script submitted."""
    make_checkpoint(tmp_path / "toy")
    own = ("SWELAB_", "SWE_", "DOCKER_HOST", "SLURM_", "MODEL_")
    told = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    port = free_port()
    with needed_cluster() as cluster:
        told |= {**cluster.env, "NODES": "2", "GPUS": "1", "TP": "1", "MODEL_PATH": str(tmp_path / "toy")}
        told |= {"ROUTER_PORT": str(port), "PYTHON_BIN": sys.executable, "ENV_SWE": "/dev/null"}
        script = ROOT / "swe-rl/scripts/launch_sglang_cluster_4nodes.sh"
        done = run_program(
            [script, "--max-total-tokens", "4096", "--max-running-requests", "8"],
            cwd=tmp_path,
            env=told | {"SBATCH_PARTITION": "gpu"},
        )
        assert done.returncode == 0, done.stderr
        job = done.stdout.split()[-1]
        log = tmp_path / f"sglang-fleet-{job}.log"
        serves = lambda: log.exists() and "serves 2 servers of toy" in log.read_text()  # noqa: E731
        assert until(lambda: serves() or job not in cluster.jobs(), 240) and serves(), log.read_text()
        yield cluster, job, port, told
        cluster.ask("scancel", job)
        assert until(lambda: job not in cluster.jobs(), 60), log.read_text()


def test_a_launched_fleet_loses_no_attempt_with_an_engine(launched, tmp_path):
    cluster, job, port, told = launched
    steps = cluster.ask("squeue", "--noheader", "--steps", "--format=%i %N").splitlines()
    assert {line.split()[1] for line in steps if line.startswith(f"{job}.")} >= {"g1", "g2"}
    make_repos(tmp_path)
    rows = [make_task() | {"instance_id": f"task-{n}"} for n in range(TASKS)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "toy.yaml").write_text(SCAFFOLD)
    out, key = tmp_path / "out", (tmp_path / "server.token").read_text().strip()
    options = {"model": "openai/toy", "api-base": f"http://127.0.0.1:{port}/v1", "scaffold": "toy.yaml"}
    options |= {"data": "rows.jsonl", "repos-dir": "repos", "output-dir": out, "max-tokens": 12}
    evaluation = subprocess.Popen(
        [sys.executable, "-m", "scripts.evaluate"]
        + [str(word) for name, value in options.items() for word in (f"--{name}", value)],
        cwd=tmp_path, env=told | {"OPENAI_API_KEY": key, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    ended = lambda: len((out / "results.jsonl").read_text().splitlines())  # noqa: E731
    assert until(lambda: (out / "results.jsonl").exists() and ended() >= 4, 120)
    (scheduler,) = [pid for pid, text in writers(tmp_path / "server1.log").items() if "scheduler" in text]
    os.kill(scheduler, signal.SIGKILL)
    assert ended() < TASKS
    said = evaluation.communicate(timeout=300)[1]
    assert evaluation.returncode == 0, said
    found = list(read_jsonl(out / "results.jsonl"))
    assert [row["instance_id"] for row in found] == [f"task-{n}" for n in range(TASKS)]
    summary = read_json(out / "summary.json")
    assert (summary["total"], summary["errors"], summary["complete"]) == (TASKS, 0, True)
    assert all(row["n_steps"] == 4 for row in found), summary["outcomes"]
    log = tmp_path / f"sglang-fleet-{job}.log"
    assert until(lambda: "model server 1: " in log.read_text(), 30), (
        "the engine was killed, and started again"
    )
