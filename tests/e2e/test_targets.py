"""Typing errors in the command line of a run: one line that names the error, before anything runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.clone import make_clone

SNAKEMAKE = Path(sys.executable).with_name("snakemake")


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    return make_clone(tmp_path_factory.mktemp("targets") / "swelab")


def errors(clone, *arguments):
    done = subprocess.run([SNAKEMAKE, "-n", *arguments], cwd=clone, capture_output=True, text=True)
    assert done.returncode and "Traceback" not in done.stderr, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("error: ")]


@pytest.mark.parametrize(
    "target, hint",
    [
        ("results/scores/scriptd/forge-train.json", "has no policy 'scriptd' (did you mean 'scripted'?)"),
        (
            "results/tasks/drill-heldot.lock.json",
            "has no subset 'drill-heldot' (did you mean 'drill-heldout'?)",
        ),
        ("results/verified_scor.json", "did you mean results/verified_score.json?"),
        ("reprot", "did you mean report?"),
        ("rollout", "a path such as results/rollouts/{policy}/{subset}/{shard}.jsonl"),
    ],
)
def test_a_wrong_target(clone, target, hint):
    (told,) = errors(clone, target)
    assert target in told and hint in told


def test_a_recipe_with_a_space_in_its_name(clone):
    recipe = clone / "configs" / "subsets" / "my set.yaml"
    recipe.write_text("source: dataset\npath: x.jsonl\n")
    try:
        (told,) = errors(clone)
    finally:
        recipe.unlink()
    assert "configs/subsets/my set.yaml: 'my set' cannot name a recipe; expected letters, digits" in told


def test_a_setting_that_is_misspelt(clone):
    (told,) = errors(clone, "--config", "experimnt=demo")
    assert "unknown key experimnt (did you mean 'experiment'?)" in told
