"""Training on scored or validated tasks is refused first of all, by a check that reads only rows."""

import json
import sys

import pytest
import yaml

from swelab.records import read_json
from tests.conftest import run_program
from tests.e2e.clone import copy_repository
from tests.unit.tasks.test_criteria import patch
from tests.unit.tasks.test_datasets_source import row

pytestmark = [pytest.mark.real, pytest.mark.full]
RECIPES = {
    "experiments/learns": {
        "expert": {"policy": "scripted", "subsets": ["shown"]},
        "sft": "taught",
        "policies": ["base", "learner"],
        "benchmarks": ["bench"],
        "compare": ["base", "learner"],
    },
    "sft/taught": {"base": "tiny"},
    "policies/learner": {"kind": "checkpoint", "scaffold": "demo", "weights": "rl:learns"},
    "rl/learns": {
        "start": "sft:taught",
        "subset": "train",
        "scaffold": "demo",
        "train": {"steps": 1},
        "validation": {"subset": "held"},
    },
}


def task(number, **changes):
    own = {"repo": f"own/pack{number}", "patch": patch(f"m{number}.py"), "image_name": "own/pack:1"}
    return row(number, **own | changes)


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    clone = tmp_path_factory.mktemp("disjoint") / "clone"
    copy_repository(clone)
    for name, recipe in RECIPES.items():
        (clone / f"configs/{name}.yaml").write_text(yaml.safe_dump(recipe))
    for name in ("train", "held", "bench", "shown"):
        recipe = {"source": "dataset", "path": f"{name}.jsonl"}
        (clone / f"configs/subsets/{name}.yaml").write_text(yaml.safe_dump(recipe))
    write(clone, shown=[task(40)])
    return clone


def write(clone, **subsets):
    for name, rows in subsets.items():
        (clone / f"{name}.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rows))


def run(clone):
    words = ["--cores", "2", "--config", "experiment=learns", "--", "results/rl/learns/disjoint.json"]
    return run_program([sys.executable, "-m", "snakemake", *words], cwd=clone)


SEPARATE = {"train": [task(1), task(2)], "held": [task(11)], "bench": [task(21)]}
SHARED = {
    "a task of the benchmark": ({"bench": [task(21), task(2)]}, "1 by instance_id"),
    "a bug of the benchmark": ({"bench": [task(21, patch=task(1)["patch"])]}, "1 by bug"),
    "a function of the validation": (
        {
            "train": [task(1, function="m.py::f"), task(2)],
            "held": [task(11, repo="own/pack1", function="m.py::f")],
        },
        "1 by function (own/pack1:m.py::f)",
    ),
}


@pytest.mark.parametrize("what", SHARED)
def test_what_is_shared_is_refused_in_one_line(clone, what):
    subsets, words = SHARED[what]
    write(clone, **SEPARATE | subsets)
    done = run(clone)
    told = [line for line in (done.stdout + done.stderr).splitlines() if "error: " in line]
    assert done.returncode != 0 and len(told) == 1, done.stderr[-3000:]
    assert "train and heldout overlap: " in told[0] and words in told[0]
    assert not (clone / "results/rl/learns/disjoint.json").exists()
    assert not (clone / "results/rollouts").exists() and not (clone / "results/models").exists()


def test_what_is_separate_is_learned_from(clone):
    write(clone, **SEPARATE)
    done = run(clone)
    assert done.returncode == 0, done.stderr[-3000:]
    verdict = read_json(clone / "results/rl/learns/disjoint.json")
    assert verdict["train"]["instance_id"] == 2 and verdict["heldout"]["instance_id"] == 2
