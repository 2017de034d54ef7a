"""A small chain through every rule with the real tools, and which rules run again after changes."""

import json
import shutil
import sys

import pytest

from tests.conftest import run_program
from tests.e2e.clone import journal, planned, snakemake

pytestmark = pytest.mark.real


def test_the_chain_reaches_a_score(chain):
    score = json.loads((chain / "results/verified_score.json").read_text())
    assert score["benchmark"]["name"] == "small-heldout"
    assert set(score["policies"]) == {"small-base", "small-sft"}
    assert all(policy["total"] == score["benchmark"]["size"] for policy in score["policies"].values())
    assert all(policy["statuses"]["infra_error"] == 0 for policy in score["policies"].values())
    assert 0 <= score["comparison"]["p_value"] <= 1
    rows = [json.loads(line) for line in (chain / "results/sft/small/dataset.jsonl").read_text().splitlines()]
    manifest = json.loads((chain / "results/sft/small/dataset.manifest.json").read_text())
    assert rows and len(rows) == manifest["kept"] == manifest["trajectories"] - sum(
        manifest["dropped"].values()
    )
    page = (chain / "results/report.html").read_text()
    assert "scripted policy" in page


def test_the_score_is_followed_to_the_weights_that_it_is_of(chain):
    command = [sys.executable, "-m", "scripts.verify", "results/verified_score.json"]
    done = run_program(command, cwd=chain)
    assert done.returncode == 0, done.stdout + done.stderr
    manifest = json.loads((chain / "results/verified_score.json").read_text())["manifest"]
    hashed = {file["path"] for file in manifest["files"]}
    weights = "results/sft/small/checkpoint/model.safetensors"
    assert {weights, "results/models/small/model.safetensors"} <= hashed and manifest["missing"] == []
    path = chain / weights
    kept = path.read_bytes()
    path.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    done = run_program(command, cwd=chain)
    path.write_bytes(kept)
    assert done.returncode == 1 and f"edited   {weights}: not what train_sft wrote" in done.stdout


def test_nothing_is_left_to_do(chain):
    code, text = snakemake(chain)
    assert code == 0 and "Nothing to be done" in text
    assert planned(chain) == {}


def test_what_is_handed_on_is_whole_and_verified_in_another_clone(chain, tmp_path):
    score = "results/verified_score.json"
    command = [sys.executable, "-m", "scripts.publish", score, "--to", str(tmp_path / "shared")]
    done = run_program(command, cwd=chain)
    assert done.returncode == 0, done.stderr
    shutil.unpack_archive(tmp_path / "shared/swelab-small.tar.gz", tmp_path)
    there = tmp_path / "swelab-small"
    code, text = snakemake(there, "-n")
    assert code == 0 and "Nothing to be done" in text, text
    assert "missing provenance" not in text and "Migrating" not in text
    command = [sys.executable, "-m", "scripts.verify", score]
    done = run_program(command, cwd=there)
    assert done.returncode == 0 and "all hold" in done.stdout, done.stdout + done.stderr
    for path in there.rglob("*.json*"):
        assert str(chain) not in path.read_text(), path
    kept = journal(there, "rollout", "small-sft", "small-heldout")
    assert [row["key"] for row in kept] and len(kept) == 6
    recipe = there / "configs/subsets/small-heldout.yaml"
    recipe.write_text(recipe.read_text().replace("limit: 6", "limit: 7"))
    plan = planned(there)
    assert {"make_tasks", "rollout", "grade", "score"} <= plan.keys()
    assert not plan.keys() & {"preflight", "train_sft", "build_sft_dataset", "build_repo", "make_base_model"}


@pytest.mark.full
def test_one_more_task_costs_one_more_rollout_and_grade(chain):
    path = chain / "configs/subsets/small-heldout.yaml"
    before = {
        p: (journal(chain, "rollout", p, "small-heldout"), journal(chain, "grade", p, "small-heldout"))
        for p in ("small-base", "small-sft")
    }
    tasks = json.loads((chain / "results/tasks/small-heldout.json").read_text())
    text = path.read_text()
    path.write_text(text.replace("limit: 6", "limit: 7"))
    assert path.read_text() != text
    code, output = snakemake(chain)
    assert code == 0, output[-6000:]
    more = json.loads((chain / "results/tasks/small-heldout.json").read_text())
    assert more[: len(tasks)] == tasks and len(more) == len(tasks) + 1
    for policy, (rollouts, grades) in before.items():
        assert len(journal(chain, "rollout", policy, "small-heldout")) == len(rollouts) + 1
        assert len(journal(chain, "grade", policy, "small-heldout")) == len(grades) + 1
    score = json.loads((chain / "results/verified_score.json").read_text())
    assert score["benchmark"]["size"] == len(more)
