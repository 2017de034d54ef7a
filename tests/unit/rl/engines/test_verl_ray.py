"""Ray over the nodes of a SLURM job with a stand-in for srun. test_verl_nodes.py uses the real one."""

import json
from pathlib import Path

import pytest

from swelab.cluster import slurm
from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.records import InputError
from swelab.rl.engines import verl_run
from swelab.rl.engines.verl_run import OwnRay, open_ray
from tests.contract.attacks import until

SETTINGS = {
    "start": "model:toy",
    "subset": "some",
    "scaffold": "demo",
    "engine": "verl",
    "train": {"steps": 3, "batch_tokens": 32768, "device": "cpu"},
    "verl": {"gpus": 1, "trainer": {"nodes": 2}, "rollout": {"loops": 2}},
    "job": {"nodes": 2, "cpus": 3},
}
NODES = [slurm.Node("a", "127.0.0.1"), slurm.Node("b", "127.0.0.1")]
PYTHON = Path("/verl/bin/python")


def recipe(**changes):
    return recipes.complete(RL, SETTINGS | changes, "test")


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The environment of a job with two nodes. `srun` writes down its command line."""
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr(slurm, "job_nodes", lambda: NODES)

    def srun(then):
        path = tmp_path / "srun"
        path.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/words\nhead -n 1 > {tmp_path}/told\n{then}\n')
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    return srun


def opened(tmp_path, **changes):
    return open_ray(recipe(**changes), PYTHON, {"PATH": f"{tmp_path}:/usr/bin:/bin"}, tmp_path)


def await_file(path):
    assert until(lambda: path.exists() and path.stat().st_size)
    return path.read_text()


def test_a_step_of_the_job_is_a_node_of_ray_until_it_is_to_end(job, tmp_path):
    job(f"cat; touch {tmp_path}/ended")
    with opened(tmp_path) as ray:
        told = json.loads(await_file(tmp_path / "told"))
        words = (tmp_path / "words").read_text()
        assert "--jobid=7" in words and "--nodelist=b " in words and "--cpus-per-task=3" in words
        assert "--gpus" not in words, "there are none"
        assert f"--address={ray.address}" in told["words"] and told["port"] > 0
        assert {"--num-gpus=1", "--num-cpus=12"} <= set(told["words"])
        command = ray.command("/private", ["a=b"])
        assert command[:5] == [str(PYTHON), "-m", verl_run.HEAD, "2", ray.address]
        head, verl = map(json.loads, command[-2:])
        assert {"--head", "--temp-dir=/private/ray"} <= set(head) and "--head" not in told["words"]
        assert verl == [str(PYTHON), "-m", verl_run.MAIN, "a=b"]
        assert ray.fault() == "" and not (tmp_path / "ended").exists()
    assert (tmp_path / "ended").exists()


def test_a_node_that_is_lost_is_told_with_what_it_said(job, tmp_path):
    job("echo 'srun: error: b: task 0: Killed' >&2; exit 137")
    with opened(tmp_path) as ray:
        assert until(ray.fault)
        fault = ray.fault()
    assert fault.startswith("node b: Ray ended with 137: srun: error: b: task 0: Killed; logs: ")


def test_without_its_job_it_is_refused_in_one_line(job, tmp_path, monkeypatch):
    monkeypatch.setattr(slurm, "job_nodes", lambda: NODES[:1])
    with pytest.raises(InputError, match="1 nodes in this SLURM job; expected 2"), opened(tmp_path):
        pass
    monkeypatch.delenv("SLURM_JOB_ID")
    with pytest.raises(InputError, match="job.nodes is 2; expected a SLURM job"), opened(tmp_path):
        pass


def test_one_machine_and_a_ray_that_runs_need_nothing_of_ours(job, tmp_path, monkeypatch):
    with opened(tmp_path, job={"nodes": 1}) as ray:
        assert isinstance(ray, OwnRay) and ray.address == "" and ray.fault() == ""
        assert ray.command("/private", ["a=b"]) == [str(PYTHON), "-m", verl_run.MAIN, "a=b"]
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    with opened(tmp_path) as ray:
        assert ray.address == "head:6379"
