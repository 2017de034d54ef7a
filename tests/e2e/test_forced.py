"""Stages named on the command line, and missing API keys: dry runs of Snakemake on a clone."""

import os
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import run_program
from tests.e2e.clone import make_clone

pytestmark = pytest.mark.full

SNAKEMAKE = Path(sys.executable).with_name("snakemake")
ROLLOUT = "results/rollouts/paid/drill-heldout/000of001.jsonl"
RATING = "results/difficulty/paid/drill-heldout.jsonl"
MADE = tuple(
    """
repos/drill.tar repos/drill.json tasks/drill-heldout.json tasks/drill-heldout.manifest.json
tasks/drill-heldout.lock.json tasks/drill-heldout.kept.json
""".split()
)


@pytest.fixture
def clone(tmp_path):
    """A clone with a hosted policy, and a rater that calls it."""
    clone = make_clone(tmp_path / "swelab")
    paid = "kind: hosted\nscaffold: demo\nmodel: openai/toy\napi_key_env: [TOY_A, TOY_B]\n"
    (clone / "configs/policies/paid.yaml").write_text(paid)
    rater = (clone / "configs/raters/difficulty.yaml").read_text()
    lines = [line for line in rater.splitlines() if not line.startswith("policy:")]
    (clone / "configs/raters/paid.yaml").write_text("\n".join(["policy: paid", *lines]))
    return clone


def snakemake(clone, *arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TOY_")}
    done = run_program([SNAKEMAKE, *arguments], cwd=clone, env=environment | variables)
    assert "Traceback" not in done.stderr, done.stderr
    return done


def planned(clone, *arguments):
    """Returns the rules that a dry run would run."""
    done = snakemake(clone, "-n", *arguments)
    assert done.returncode == 0, done.stderr
    stats = (done.stdout + done.stderr).partition("Job stats:")[2].partition("\ntotal")[0]
    return {row.split()[0] for row in stats.splitlines()[3:]}


def make(clone, *paths):
    """Makes files in the order of their rules."""
    for number, path in enumerate(paths):
        (clone / path).parent.mkdir(parents=True, exist_ok=True)
        (clone / path).write_text("{}\n")
        then = time.time() - 1000 + number
        os.utime(clone / path, (then, then))


def test_a_stage_that_is_named_is_forced_for_every_kind_of_recipe(clone):
    weights = "results/models/small.json"
    rated = [RATING, RATING.replace(".jsonl", ".manifest.json")]
    make(clone, *(f"results/{path}" for path in MADE), ROLLOUT, *rated)
    assert planned(clone, ROLLOUT, RATING) == set()
    assert planned(clone, ROLLOUT, "--forcerun", "rollout") == {"rollout_hosted"}
    assert planned(clone, ROLLOUT, "--forcerun=rollout") == {"rollout_hosted"}
    assert planned(clone, "--forcerun=rollout", ROLLOUT) == {"rollout_hosted"}
    assert planned(clone, "--forcerun=rollout", "--until=rollout", ROLLOUT) == {"rollout_hosted"}
    assert planned(clone, ROLLOUT, "-R", "rollout_hosted") == {"rollout_hosted"}
    assert planned(clone, RATING, "--forcerun", "rate_difficulty") == {"rate_difficulty_hosted"}
    assert "rollout_hosted" in planned(clone, ROLLOUT, "--forcerun", "validate_tasks")
    (clone / ROLLOUT).unlink()
    assert planned(clone, ROLLOUT, "--omit-from", "rollout") == set()
    scripted = ROLLOUT.replace("/paid/", "/scripted/")
    assert not (clone / weights).exists()
    assert planned(clone, scripted, "--until", "rollout") == {"rollout"}


def made(clone):
    """Returns all files of a clone except Snakemake's own and bytecode."""
    return {path for path in clone.rglob("*") if not {".snakemake", "__pycache__"} & set(path.parts)}


def test_a_missing_key_is_told_before_anything_is_made(clone):
    for target, rule in ((ROLLOUT, "rollout_hosted"), (RATING, "rate_difficulty_hosted")):
        before = made(clone)
        done = snakemake(clone, target, "--cores", "1", TOY_A="secret")
        told = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert done.returncode == 2 and told == [
            "error: policy paid: api_key_env: the environment variable TOY_B is not set;"
            " expected the key of openai/toy in it"
        ]
        assert made(clone) == before
        assert rule in planned(clone, target)


def test_a_missing_key_does_not_matter_where_nothing_is_asked(clone):
    make(clone, *(f"results/{path}" for path in MADE), ROLLOUT)
    done = snakemake(clone, ROLLOUT, "--cores", "1")
    assert done.returncode == 0 and "Nothing to be done" in done.stdout + done.stderr
