"""A verl training on two nodes of a real SLURM is preempted, then cancelled, and still ends well."""

import json
import os
import subprocess

import pytest
import torch
from safetensors.torch import load_file

from swelab.records import read_jsonl
from swelab.rl.engines.verl_export import newest_step
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
verl: {gpus: 1, trainer: {nodes: 2}, rollout: {loops: 2}, save: 3}
job: {nodes: 2, cpus: 2, mem_mb: 15000, minutes: 120}
"""
# A checkpoint may take two minutes before one was written. So a step that ends in this grace time is saved.
PREEMPTION = """\
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
PartitionName=DEFAULT PriorityTier=1 GraceTime=175
PartitionName=urgent Nodes=c1,c2 PriorityTier=2 State=UP PreemptMode=off
"""
URGENT = ("sbatch", "--partition=urgent", "--nodes=2", "--mem=12000", "--output=/dev/null", "--wrap=true")
SAVED = ": saved, as the SLURM job is about to end"
START_SECONDS = 1200


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    made = make_clone(tmp_path_factory.mktemp("nodes") / "swelab")
    (made / "configs/rl/two.yaml").write_text(RECIPE)
    site = made / "configs/site.yaml"  # a requeued job asks for more memory than a node has
    site.write_text(site.read_text().replace("max_mem_mb: 64000", "max_mem_mb: 15000"))
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
        """Returns the last messages of Snakemake, the job and verl."""
        paths = [self.clone / "log", *self.clone.glob("results/logs/train_rl/*.log"), *self.work("*.log")]
        return "\n".join(f"{path.name}: {path.read_text(errors='replace')[-2500:]}" for path in paths)

    def work(self, pattern):
        return sorted(self.clone.glob(f"results/progress/train_rl/two/*/{pattern}"))

    def journals(self, step="*"):
        return self.work(f"journals/{step}/*.jsonl")

    def job(self):
        """Returns the number of the training job, or ""."""
        return next((n for n, told in self.cluster.jobs().items() if told[2].startswith("rule_train_rl")), "")

    def await_state(self, reached):
        """Waits until `reached()` is true, as long as Snakemake runs."""
        assert until(lambda: self.process.poll() is not None or reached(), START_SECONDS), self.said()
        assert self.process.poll() is None, self.said()

    def await_step(self, step):
        """Waits until the journal has a turn of that step's rollouts (counted from 0).

        Returns the job's number.
        """
        self.await_state(lambda: any(path.stat().st_size for path in self.journals(f"{step:05d}")))
        return self.job()

    def stop(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def nodes_of(cluster, job):
    """Returns the nodes on which steps of a job run."""
    lines = cluster.ask("squeue", "--noheader", "--steps", "--format=%i %N").splitlines()
    return {line.split()[1] for line in lines if line.startswith(f"{job}.")}


def test_two_nodes_train_and_a_preempted_and_a_cancelled_job_go_on(clone):
    with needed_cluster(PREEMPTION) as cluster:
        run = Run(cluster, clone)
        try:
            job = run.await_step(1)
            assert "NodeList=c[1-2]" in cluster.ask("scontrol", "show", "job", job)
            assert {"c1", "c2"} <= nodes_of(cluster, job), "Ray's second node is a step of the job"
            assert cluster.ask(*URGENT)
            (work,) = run.work(".")
            run.await_state(lambda: newest_step(work / "verl") and SAVED in (work / "verl.log").read_text())
            saved = newest_step(work / "verl")
            kept = {path: path.read_bytes() for path in run.journals()}
            cluster.ask("scontrol", "requeue", job)  # SLURM does this at the end of the grace time
            again = run.await_step(saved)
            assert again == job, "SLURM began the same job anew"
            kept |= {path: path.read_bytes() for path in run.journals()}
            cluster.ask("scancel", again)
            assert run.process.wait(START_SECONDS) == 0, run.said()
        finally:
            run.stop()
    rows = list(read_jsonl(clone / "results/rl/two/metrics.jsonl"))
    assert [row["step"] for row in rows] == [1, 2, 3]
    assert all(row["rollouts"] == 4 and row["rate/lost"] == 0 for row in rows)
    figures = {row["step"]: row.get("verl/training/rollout_probs_diff_max") for row in rows}
    figures[saved] = figures[saved] or 0.0  # verl writes them after it saves, so the requeue may come before
    assert all(difference < 1e-3 for difference in figures.values())
    assert len(run.journals()) == 12 and len(list((work / "verl/figures").iterdir())) in (3, 4)
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
