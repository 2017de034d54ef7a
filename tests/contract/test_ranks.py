"""Training with several processes on two nodes of a real SLURM gives the same loss as one process."""

import os
import sys

import pytest
import yaml

from swelab.configs.kinds.sft import Train
from swelab.records import InputError, read_jsonl, write_json, write_jsonl
from swelab.sft.rows.lengths import ChatTokenizer, stats
from swelab.sft.train.ranks import Ranks, share
from tests.conftest import run_program
from tests.contract.slurm import needed_cluster
from tests.e2e.clone import command_on_slurm, make_clone
from tests.toy_checkpoint import conversations, make_checkpoint

pytestmark = pytest.mark.alone

TRAIN = {"epochs": 2, "batch_size": 8, "lr": 0.01, "warmup_steps": 2, "threads": 1}
JOBS = {"alone": {}, "two": {"nodes": 2, "ranks": 2}}


@pytest.fixture
def clone(tmp_path):
    """A clone with a base model and a dataset, which no rule has to make."""
    clone = make_clone(tmp_path / "swelab")
    base = make_checkpoint(clone / "results/models/toy")
    lengths = [ChatTokenizer(base).measure(row["messages"]) for row in conversations(38)]
    (clone / "results/models/toy.json").write_text("{}")
    for name, job in JOBS.items():
        write_jsonl(clone / f"results/sft/{name}/dataset.jsonl", conversations(38))
        told = stats(f"results/sft/{name}/dataset.jsonl", lengths, 32768, "drop")
        write_json(clone / f"results/sft/{name}/dataset.stats.json", told)
        write_json(clone / f"results/sft/{name}/disjoint.json", {})
        recipe = {"base": "toy", "selection": {}, "train": TRAIN, "job": {**job, "mem_mb": 6000}}
        (clone / f"configs/sft/{name}.yaml").write_text(yaml.safe_dump(recipe))
    note_environment(clone)
    return clone


def note_environment(clone):
    """Names a training environment whose Python writes down its command lines."""
    python = clone / "gpu/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$*" >> {clone}/gpu/started\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    site = clone / "configs/site.yaml"
    settings = yaml.safe_load(site.read_text())
    settings["site"]["environments"]["train"] = f"{clone}/gpu"
    site.write_text(yaml.safe_dump(settings))


@pytest.mark.full
@pytest.mark.real
def test_two_nodes_with_two_ranks_each_train_as_one_process_does(clone):
    targets = [f"results/sft/{name}/loss.jsonl" for name in JOBS]
    run = command_on_slurm("--retries=0", "--allowed-rules", "preflight", "train_sft", "--", *targets)
    with needed_cluster() as cluster:
        done = run_program(run, cwd=clone, env={**os.environ, **cluster.env})
        nodes = cluster.ask("scontrol", "show", "job")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " NodeList=c[1-2]" in nodes and "NumNodes=2" in nodes, nodes
    one, other = ([(row["step"], row["loss"]) for row in read_jsonl(clone / f"results/sft/{name}/loss.jsonl")]
                  for name in JOBS)  # fmt: skip
    started = (clone / "gpu/started").read_text().splitlines()
    assert len(started) == 2 and all(line.startswith("-m scripts.train_sft ") for line in started)
    assert len(one) == 8 and one[0][1] > one[-1][1]
    assert other == [(step, pytest.approx(loss, rel=1e-4)) for step, loss in one]


def test_steps_are_dealt_out_evenly():
    def shared(ranks, **train):
        mine = share(Train(**train), Ranks(1, ranks, 0, 1))
        return mine["batch_size"], mine["gradient_accumulation_steps"]

    assert shared(1, batch_size=8, gradient_accumulation_steps=2) == (8, 2)
    assert shared(4, batch_size=8) == (2, 1)
    assert shared(8, gradient_accumulation_steps=32) == (1, 4)
    assert shared(4, batch_size=6, gradient_accumulation_steps=2) == (3, 1)
    with pytest.raises(InputError, match="a step of 6 .* on 4 ranks; expected a multiple of 4"):
        shared(4, batch_size=6)
