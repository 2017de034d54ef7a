"""SIGKILL of the whole process group at random moments, then the same command again.

SWELAB_KILLS sets the number of kills (default 3).
"""

import json
import os
import random
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.contract.attacks import until
from tests.e2e.clone import command, make_clone, snakemake
from tests.processes import command_line, matching

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]
KILLS = int(os.environ.get("SWELAB_KILLS", "3"))
IDENTICAL = tuple(
    """
results/tasks/small-train.json results/tasks/small-forge.json results/tasks/small-heldout.json
results/rollouts/scripted/small-train/001of002.jsonl results/rollouts/scripted/small-forge/000of002.jsonl
results/sft/small/dataset.jsonl
""".split()
)


def survivors(folder: Path) -> list[str]:
    """Returns the command lines of processes that work in `folder` or, sandboxed, on mounts from it."""
    lines = []

    def works_here(process):
        line = command_line(process)
        seen = line + os.readlink(process / "cwd") + (process / "mountinfo").read_text()
        if line and str(folder) in seen:
            lines.append(line)

    matching(works_here)
    return lines


def statuses(clone: Path) -> dict[str, str]:
    return {
        f"{path.parent.parent.name} {row['instance_id']}": row["status"]
        for path in sorted((clone / "results/grades").glob("*/*/*.jsonl"))
        for row in map(json.loads, path.read_text().splitlines())
    }


def test_a_killed_run_ends_where_an_uninterrupted_one_does(chain, tmp_path):
    clone = make_clone(tmp_path / "swelab")
    shutil.copytree(chain / "configs", clone / "configs", dirs_exist_ok=True)
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    places = dict.fromkeys(("TMPDIR", "SWELAB_SCRATCH"), str(scratch))
    moments = random.Random(17)
    killed = 0
    for number in range(KILLS):
        run = subprocess.Popen(
            command(), cwd=clone, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **places},
        )  # fmt: skip
        try:
            run.wait(moments.uniform(4, 20))
            break
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            run.wait()
            killed += 1
        assert until(lambda: not survivors(tmp_path)), f"after kill {number}: {survivors(tmp_path)}"
    assert killed >= min(KILLS, 3)
    code, text = snakemake(clone)
    assert code == 0, text[-6000:]
    for name in IDENTICAL:
        assert (clone / name).read_bytes() == (chain / name).read_bytes(), name
    assert statuses(clone) == statuses(chain)
    weights = "results/sft/small/checkpoint.json"
    assert (
        json.loads((clone / weights).read_text())["digest"]
        == json.loads((chain / weights).read_text())["digest"]
    )
    for path in (clone / "results/progress").rglob("*.jsonl"):
        if "train_sft" in path.parts:
            continue  # the metrics of each step of a training
        keys = [json.loads(line)["key"] for line in path.read_text().splitlines()]
        assert len(keys) == len(set(keys)), f"{path.name}: something was done twice"
    assert not list((clone / "results").rglob("*.part"))
