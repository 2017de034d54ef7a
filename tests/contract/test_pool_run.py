"""Rollouts and grades on hosts of a pool equal those of a local engine, even if servers are killed."""

import os
import subprocess
import sys
import time

import pytest

from swelab.records import read_json, read_jsonl, write_json
from tests.conftest import ROOT, run_python
from tests.contract import pool_servers
from tests.contract.attacks import PATIENCE, until

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
TASKS = 6


@pytest.fixture(scope="module")
def drill(tmp_path_factory):
    """A folder with tasks of the drill package, and a policy that fails on some of them."""
    folder = tmp_path_factory.mktemp("drill")
    recipe = ["--recipe", ROOT / "configs/repos/drill.yaml", "--cache", folder / "cache"]
    out = ["--output", folder / "drill.tar", "--manifest", folder / "drill.json"]
    assert run_python("-m", "scripts.build_repo", *recipe, *out).returncode == 0
    recipe = ["--recipe", ROOT / "tests/e2e/configs/subsets/small-heldout.yaml", "--repos-dir", folder]
    out = ["--output", folder / "tasks.json", "--manifest", folder / "tasks.manifest.json"]
    done = run_python("-m", "scripts.make_tasks", *recipe, "--progress", folder / "made.jsonl", *out)
    assert done.returncode == 0, done.stderr
    assert len(read_json(folder / "tasks.json")) == TASKS
    policy = "kind: scripted\nscaffold: demo\nseed: 3\nwrong_edit: 0.3\ngive_up: 0.2\n"
    (folder / "scripted.yaml").write_text(policy)
    return folder


class Run:
    """Runs both stages on the tasks as the rules do, each in its own process."""

    def __init__(self, drill, folder, backend):
        self.folder = folder
        folder.mkdir()
        tasks = ["--tasks", drill / "tasks.json", "--repos-dir", drill, "--subset", "s", "--workers", "3"]
        policy = ["--policy", drill / "scripted.yaml", "--scaffold", ROOT / "configs/scaffolds/demo.yaml"]
        self._stages = {
            "rollout": [*tasks, *policy],
            "grade": [*tasks, "--policy", "p", "--predictions", folder / "predictions.json"],
        }
        self._environment = {**os.environ, "SWELAB_BACKEND": backend}

    def start(self, stage):
        words = ["--progress", self.folder / f"{stage}.journal", "--output", self.folder / f"{stage}.jsonl"]
        return subprocess.Popen(
            list(map(str, [sys.executable, "-m", f"scripts.{stage}", *self._stages[stage], *words])),
            cwd=ROOT,
            env=self._environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, stage, process):
        said = process.communicate(timeout=300)[1]
        assert process.returncode == 0, said
        rows = list(read_jsonl(self.folder / f"{stage}.jsonl"))
        keys = [row["key"] for row in read_jsonl(self.folder / f"{stage}.journal")]
        assert len(keys) == len(set(keys)) == len(rows) == TASKS, "an instance was lost, or done twice"
        if stage == "rollout":
            write_json(
                self.folder / "predictions.json",
                {
                    row["instance_id"]: {
                        "instance_id": row["instance_id"],
                        "model_name_or_path": "p",
                        "model_patch": row["model_patch"],
                    }
                    for row in rows
                },
            )
        return rows

    def journalled(self, stage):
        path = self.folder / f"{stage}.journal"
        return path.read_text().count("\n") if path.exists() else 0


@pytest.fixture(scope="module")
def local(engine, drill, tmp_path_factory):
    """The results of an engine on this machine."""
    run = Run(drill, tmp_path_factory.mktemp("local") / "run", "docker")
    rows = {stage: run.end(stage, run.start(stage)) for stage in ("rollout", "grade")}
    assert len({row["status"] for row in rows["grade"]}) > 1
    return run.folder, rows


def test_results_are_those_of_a_local_engine_whatever_ends(engine, drill, local, tmp_path, monkeypatch):
    """Each server is killed during each stage, and starts again."""
    site = pool_servers.Site(engine, tmp_path / "site", hosts=2, places=2, ttl=300)  # none runs out
    for name, value in site.told().items():
        monkeypatch.setenv(name, value)
    run, (kept, rows), killed = Run(drill, tmp_path / "run", "remote"), local, 0
    try:
        for stage in ("rollout", "grade"):
            process = run.start(stage)
            for server in (site.pool, *site.hosts):
                until(lambda: process.poll() is not None or site.leases() >= 2, PATIENCE)  # noqa: B023
                killed += process.poll() is None
                server.kill()
                time.sleep(0.3)
                server.start()
            assert timeless(run.end(stage, process)) == timeless(rows[stage])
        assert killed >= 4 and site.clean()
    finally:
        site.close()
    trajectories = [(folder / "rollout.jsonl").read_bytes() for folder in (kept, run.folder)]
    assert trajectories[0] == trajectories[1]


def timeless(rows):
    """Returns grades without times."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]
