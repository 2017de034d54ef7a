"""The demo through a real SLURM: a tiny model really learns."""

import contextlib
import json
import os
import subprocess
import warnings

import pytest

from tests.conftest import run_program
from tests.contract.slurm import NoCluster, running_cluster
from tests.e2e.clone import TARGETS, command, command_on_slurm, make_clone

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
# Nodes claim twice the two cores, so one job works while another starts.
CPUS = 2


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    clone = make_clone(tmp_path_factory.mktemp("demo") / "swelab")
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(running_cluster(CPUS))
            run = command_on_slurm("--", *TARGETS, config=["experiment=demo", "workers=1"])
            surroundings = cluster.env
        except NoCluster as reason:
            warnings.warn(f"THE DEMO RUNS WITHOUT SLURM: {reason}", stacklevel=1)
            run, surroundings = command(config=["experiment=demo"]), {}
        done = run_program(run, cwd=clone, env={**os.environ, **surroundings}, stdin=subprocess.DEVNULL)
        (clone / "log").write_text(done.stdout + done.stderr)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        if surroundings:
            assert cluster.ask("squeue", "--noheader", "--states=COMPLETED"), "no job went through SLURM"
    return clone


@pytest.fixture(scope="module")
def score(clone):
    return json.loads((clone / "results/verified_score.json").read_text())


def test_the_demo_learns_what_its_base_cannot(score):
    base, sft = score["policies"]["base"], score["policies"]["sft"]
    assert score["benchmark"]["name"] == "drill-heldout" and score["benchmark"]["size"] >= 60
    assert base["resolve_rate"] <= 0.02 and sft["resolve_rate"] >= 0.8
    assert score["comparison"]["p_value"] < 0.001


def test_the_forged_tasks_are_scored_beside_it(score):
    (forged,) = score["others"]
    assert forged["benchmark"]["name"] == "forge-heldout" and forged["benchmark"]["size"] >= 40
    for policy in (*score["policies"].values(), *forged["policies"].values()):
        assert policy["statuses"]["infra_error"] == 0
