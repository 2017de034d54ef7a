"""Rollouts and grading on two real Ray nodes give the same results as threads, even if hosts are killed."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from swelab.configs import recipes
from swelab.configs.kinds import REPO, SUBSET
from swelab.files.json_streams import write_list
from swelab.records import read_jsonl, write_bytes
from swelab.tasks import drill
from tests.contract.ray_cluster import cluster

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
ROOT = Path(__file__).resolve().parents[2]
POLICY = {"kind": "scripted", "scaffold": "demo", "seed": 7, "wrong_edit": 0.3, "give_up": 0.1}


@pytest.fixture(scope="module")
def world(tmp_path_factory, backend):
    """Tasks, a policy, and the results of local threads."""
    folder = tmp_path_factory.mktemp("ray")
    write_bytes(folder / "repos" / "drill.tar", drill.build_repo(recipes.load_named(REPO, "drill")))
    subset = recipes.load_named(SUBSET, "drill-train").model_copy(update={"limit": 12})
    tars = {"drill": folder / "repos" / "drill.tar"}
    rows, _ = drill.make_tasks(subset, tars, backend, folder / "making.jsonl", 2)
    write_list(folder / "tasks.json", rows)
    (folder / "scripted.yaml").write_text(yaml.safe_dump(POLICY))
    for command in commands(folder, "local"):
        subprocess.run(command, cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def nodes():
    with cluster() as running:
        yield running


def commands(folder, name):
    """Returns the commands for rollouts, predictions and grades, which write to the folder `name`."""
    common = ["--tasks", folder / "tasks.json", "--repos-dir", folder / "repos", "--subset", "s"]
    made = folder / name
    rollout = ["scripts.rollout", "--policy", folder / "scripted.yaml", "--workers", "4"]
    rollout += ["--scaffold", "configs/scaffolds/demo.yaml", "--output", made / "rollouts.jsonl"]
    collect = ["scripts.collect_predictions", "--tasks", folder / "tasks.json"]
    collect += ["--trajectories", made / "rollouts.jsonl", "--output", made / "preds.json"]
    grade = ["scripts.grade", "--policy", "scripted", "--predictions", made / "preds.json"]
    grade += ["--runs", made / "runs", "--workers", "4", "--output", made / "grades.jsonl"]
    yield arguments(*rollout, *common, "--progress", made / "scripts.rollout/scripted/s/000of001.jsonl")
    yield arguments(*collect)
    yield arguments(*grade, *common, "--progress", made / "scripts.grade/scripted/s/000of001.jsonl")


def arguments(*words):
    return [sys.executable, "-m", *map(str, words)]


def spread(nodes, command):
    return nodes.inside(*command, cwd=ROOT, env=nodes.env | {"SWELAB_EXECUTOR": "ray"})


def timeless(path):
    """Returns the rows of a file without times."""
    return [{k: v for k, v in row.items() if k not in ("seconds", "journalled")} for row in read_jsonl(path)]


def equal(world, name):
    """Asserts that a run's results and journals equal those of local threads."""
    mine, local = world / name, world / "local"
    assert (mine / "rollouts.jsonl").read_bytes() == (local / "rollouts.jsonl").read_bytes()
    assert timeless(mine / "grades.jsonl") == timeless(local / "grades.jsonl")
    for script in ("scripts.rollout", "scripts.grade"):
        rows = [timeless(each / script / "scripted" / "s" / "000of001.jsonl") for each in (mine, local)]
        assert sorted(rows[0], key=json.dumps) == sorted(rows[1], key=json.dumps)


def test_results_and_journals_are_those_of_local_threads(world, nodes):
    hosts = set()
    for command in commands(world, "spread"):
        running = spread(nodes, command)
        while running.poll() is None:
            hosts |= {number for number in (0, 1) if nodes.actor(number)}
            time.sleep(0.1)
        assert running.returncode == 0
        assert hosts == {0, 1}
    equal(world, "spread")
    statuses = {row["status"] for row in read_jsonl(world / "spread" / "grades.jsonl")}
    assert "resolved" in statuses and "infra_error" not in statuses


def test_killed_processes_and_nodes_lose_nothing(world, nodes):
    """The last test, because one of the two nodes is lost in it."""
    rollout, collect, grade = commands(world, "killed")
    progress = Path(rollout[-1])
    running = spread(nodes, rollout)
    for count, blow in ((1, lambda: nodes.kill_actor(0)), (4, lambda: nodes.kill(1))):
        while running.poll() is None and (
            not progress.exists() or len(progress.read_bytes().splitlines()) < count
        ):
            time.sleep(0.05)
        assert running.poll() is None
        blow()
    assert running.wait() == 0
    for command in (collect, grade):
        assert spread(nodes, command).wait() == 0
    equal(world, "killed")
