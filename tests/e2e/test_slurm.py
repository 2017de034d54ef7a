"""Jobs on a real SLURM for tests: accidents of many kinds, an interrupted and resumed run."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.attacks import until
from tests.contract.slurm import needed_cluster
from tests.e2e.clone import command_on_slurm, journal, make_clone, toolbox

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
PREDICTIONS = "results/rollouts/scripted/small-train/preds.json"


@pytest.fixture(scope="module")
def cluster():
    with needed_cluster() as cluster:
        yield cluster


def start(cluster, clone, *arguments, config=()):
    """Starts a run under the shipped profile. Its output is in the clone's file `log`."""
    with open(clone / "log", "ab") as stream:
        return subprocess.Popen(
            command_on_slurm(*arguments, config=config),
            cwd=clone, env={**os.environ, **cluster.env}, start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
        )  # fmt: skip


def said(clone):
    return (clone / "log").read_text()[-6000:]


@pytest.fixture(scope="module")
def accidents(cluster, tmp_path_factory):
    """A run of the accidents, which starts first because it takes longest.

    Returns (its clone, its process).
    """
    clone = make_clone(tmp_path_factory.mktemp("accidents") / "swelab")
    shutil.copy2(Path(__file__).with_name("faults.smk"), clone / "faults.smk")
    (clone / "accidents").mkdir()
    site = clone / "configs/site.yaml"
    site.write_text(site.read_text().replace('constraint: ""', "constraint: real"))
    run = start(cluster, clone, "-s", "faults.smk", "--keep-going")
    yield clone, run
    if run.poll() is None:
        run.kill()
        run.wait()


def tries(clone, rule):
    """Returns (job id, node, MB, minutes) of each try of a rule of the accidents."""
    path = clone / "accidents" / f"{rule}.tries"
    return [tuple(line.split()) for line in path.read_text().splitlines()] if path.exists() else []


def test_jobs_run_on_several_nodes_with_gpus(cluster):
    say = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES"
    command = ["srun", "-N2", "-n2", "-pgpu", "--gpus-per-node=2", "--mem=100", "bash", "-c", say]
    assert sorted(cluster.ask(*command).splitlines()) == ["g1 0,1", "g2 0,1"]


def test_nodes_find_nothing_beyond_the_cluster(cluster):
    look = "import socket; socket.setdefaulttimeout(5); socket.getaddrinfo('example.org', 443)"
    assert "Name or service" in cluster.ask("srun", "sh", "-c", f'python3 -c "{look}" 2>&1; true') or (
        "name resolution" in cluster.ask("srun", "sh", "-c", f'python3 -c "{look}" 2>&1; true')
    )


def test_a_node_goes_down_and_a_job_is_cancelled(cluster, accidents):
    clone, run = accidents
    started = until(
        lambda: run.poll() is not None or (tries(clone, "moved") and tries(clone, "cancelled")), 600
    )
    assert started and run.poll() is None, said(clone)
    cluster.kill_node(tries(clone, "moved")[0][1])
    cluster.ask("scancel", tries(clone, "cancelled")[0][0])


def test_a_run_is_interrupted_and_resumed(cluster, tmp_path):
    clone, many = make_clone(tmp_path / "swelab"), 40  # a few jobs would end before they are cancelled
    subset = clone / "configs/subsets/small-train.yaml"
    subset.write_text(subset.read_text().replace("limit: 12", f"limit: {many}"))
    begin = lambda: start(cluster, clone, "--", PREDICTIONS, config=["experiment=small", "workers=1"])  # noqa: E731
    mine = lambda: [job for job in cluster.jobs().values() if job[2].startswith("rule_rollout")]  # noqa: E731
    rows = lambda: journal(clone, "rollout", "scripted", "small-train")  # noqa: E731
    run = begin()
    assert until(lambda: run.poll() is not None or rows(), 900) and run.poll() is None, said(clone)
    assert mine()
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(300) != 0
    assert until(lambda: not mine(), 120), cluster.jobs()
    before = rows()
    assert 0 < len(before) < many, "it was interrupted in the middle"
    run = begin()
    assert run.wait(900) == 0, said(clone)
    after = rows()
    assert len(after) == len({row["key"] for row in after}) == many
    assert all(row in after for row in before), "finished instances were kept"
    assert len((clone / PREDICTIONS).read_text()) > 2
    here = [sys.executable, "-m", "snakemake", PREDICTIONS, "-n", "--config", "experiment=small"]
    done = subprocess.run([*here, f"toolbox={toolbox()}"], cwd=clone, capture_output=True, text=True)
    assert "Nothing to be done" in done.stdout + done.stderr, "a cluster changes no result"
    for path in (clone / "results/progress").rglob("*.jsonl"):
        keys = [json.loads(line)["key"] for line in path.read_text().splitlines()]
        assert len(keys) == len(set(keys)), f"{path.name}: something was done twice"


def test_accidents_end_well(cluster, accidents):
    clone, run = accidents
    assert run.wait(900) == 1, said(clone)
    assert not (clone / "accidents/fails").exists()
    assert [row[2:] for row in tries(clone, "fails")] == [("900", "1"), ("1800", "2"), ("2700", "3")]
    for rule in ("late", "hungry", "cancelled", "moved"):
        assert (clone / "accidents" / rule).exists(), said(clone)
    assert [row[3] for row in tries(clone, "late")] == ["1", "2"]
    assert [row[2] for row in tries(clone, "hungry")] == ["900", "1800"]
    assert len(tries(clone, "cancelled")) == 2
    first, second = tries(clone, "moved")
    assert first[0] == second[0] and first[1] != second[1], "the same job, on another node"
    assert (clone / "accidents/moved").read_text().strip(), "it was given a GPU again"
    assert "Features=real" in cluster.ask("scontrol", "show", "job", first[0])
