"""A training on verl over two nodes of a real SLURM: requeued, then cancelled, it goes on and ends well."""

import json
import os
import subprocess

import pytest
import torch
from safetensors.torch import load_file

from swelab.records import read_jsonl
from tests.at_hand import VERL, needs_verl
from tests.contract.attacks import until
from tests.contract.slurm import needed_cluster
from tests.e2e.clone import command_on_slurm, make_clone

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone, needs_verl]
RECIPE = """
start: model:small
subset: small-train
scaffold: demo
engine: verl
rollouts: {prompts: 2, samples: 2, at_once: 4, max_tokens: 24, context_length: 512, max_total_tokens: 4096}
method: {keep_constant: true}
train: {steps: 3, lr: 1.0e-3, threads: 1, batch_tokens: 2048, device: cpu}
verl: {gpus: 1, trainer: {nodes: 2}, rollout: {loops: 2}}
job: {nodes: 2, cpus: 2, mem_mb: 7000, minutes: 120}
"""
START_SECONDS = 1200


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    made = make_clone(tmp_path_factory.mktemp("nodes") / "swelab")
    (made / "configs/rl/two.yaml").write_text(RECIPE)
    return made


class Run:
    """`snakemake results/rl/two/checkpoint.json --profile slurm` in a clone."""

    def __init__(self, cluster, clone):
        self.cluster, self.clone = cluster, clone
        command = command_on_slurm("--", "results/rl/two/checkpoint.json")
        env = {**os.environ, **cluster.env, "SWELAB_VERL_PYTHON": str(VERL.absolute())}
        with open(clone / "log", "wb") as stream:
            self.process = subprocess.Popen(
                command, cwd=clone, env=env, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream
            )

    def said(self):
        """What Snakemake, the job and verl said last."""
        paths = [self.clone / "log", *self.clone.glob("results/logs/train_rl/*.log"), *self.work("*.log")]
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2500:]}" for path in paths)

    def work(self, pattern):
        return sorted(self.clone.glob(f"results/progress/train_rl/two/*/{pattern}"))

    def journals(self, step="*"):
        return self.work(f"journals/{step}/*.jsonl")

    def job(self):
        """The number of the job that trains, "" where there is none."""
        return next((n for n, told in self.cluster.jobs().items() if told[2].startswith("rule_train_rl")), "")

    def await_step(self, step):
        """The job's number, as soon as a turn of that step's rollouts is kept."""
        begun = lambda: any(path.stat().st_size for path in self.journals(f"{step:05d}"))  # noqa: E731
        assert until(lambda: self.process.poll() is not None or begun(), START_SECONDS), self.said()
        assert self.process.poll() is None, self.said()
        return self.job()

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def nodes_of(cluster, job):
    """Nodes on which steps of a job run."""
    lines = cluster.ask("squeue", "--noheader", "--steps", "--format=%i %N").splitlines()
    return {line.split()[1] for line in lines if line.startswith(f"{job}.")}


def test_two_nodes_train_and_a_requeued_and_a_cancelled_job_go_on(clone):
    with needed_cluster() as cluster:
        run = Run(cluster, clone)
        try:
            job = run.await_step(1)
            assert "NodeList=c[1-2]" in cluster.ask("scontrol", "show", "job", job)
            assert {"c1", "c2"} <= nodes_of(cluster, job), "Ray's second node is a step of the job"
            kept = {path: path.read_bytes() for path in run.journals()}
            cluster.ask("scontrol", "requeue", job)
            assert until(lambda: cluster.jobs().get(job, ("",))[0] != "RUNNING", 60), run.said()
            again = run.await_step(2)
            assert again == job, "SLURM began the same job anew"
            kept |= {path: path.read_bytes() for path in run.journals()}
            cluster.ask("scancel", again)
            assert run.process.wait(START_SECONDS) == 0, run.said()
        finally:
            run.stop()
    rows = list(read_jsonl(clone / "results/rl/two/metrics.jsonl"))
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["rollouts"] == 4 and row["rate/lost"] == 0 for row in rows)
    assert all(row["verl/training/rollout_probs_diff_max"] < 1e-3 for row in rows)
    (work,) = run.work(".")
    assert len(run.journals()) == 12 and len(list((work / "verl/figures").iterdir())) == 3
    for path in run.journals():
        text = path.read_bytes()
        keys = [json.loads(line)["key"] for line in text.splitlines()]
        assert len(keys) == len(set(keys)), "something was sampled twice"
        assert text.startswith(kept.get(path, b"")), "what was sampled before was not kept"
    shares = work / "verl/global_step_3/actor"
    assert {path.name for path in shares.glob("model_*")} == {
        f"model_world_size_2_rank_{rank}.pt" for rank in (0, 1)
    }
    weights = load_file(clone / "results/rl/two/checkpoint/model.safetensors")
    assert all(torch.isfinite(value).all() for value in weights.values())
