"""A short form of the debugger's demo: every rule from the base model to two compared policies.

The models are too small to repair anything. `make debugger` shows that they learn (docs/debugger.md).
"""

import json

import pytest

from tests.e2e.clone import make_clone, snakemake

pytestmark = [pytest.mark.real, pytest.mark.full, pytest.mark.alone]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    clone = make_clone(tmp_path_factory.mktemp("debugger") / "swelab")
    code, text = snakemake(clone, config=["experiment=small-debugger"])
    assert code == 0, text[-6000:]
    return clone


def test_the_script_repairs_and_its_turns_are_trained_on(run):
    report = json.loads((run / "results/grades/scripted-debugger/small-debug-shown/report.json").read_text())
    assert report["resolved_instances"] >= 4
    rows = [json.loads(line) for line in (run / "results/sft/small-debugger/dataset.jsonl").open()]
    assert len(rows) == report["resolved_instances"]
    for row in rows:
        called = [
            call["function"]["name"]
            for message in row["messages"]
            for call in message.get("tool_calls") or ()
        ]
        assert "pdb" in called and "rewrite" in called, called


def test_the_policies_are_scored_on_the_same_tasks(run):
    score = json.loads((run / "results/verified_score.json").read_text())
    assert set(score["policies"]) == {f"small-debugger-{name}" for name in ("base", "start")}
    for policy in score["policies"].values():
        assert policy["total"] == 6 and policy["statuses"]["infra_error"] == 0
    assert score["comparison"]["p_value"] <= 1
    assert "pdb" in (run / "results/report.html").read_text()


def test_reinforcement_learning_says_that_there_was_nothing_to_learn_from(run):
    targets = ["results/rl/small-debugger/checkpoint.json"]
    code, text = snakemake(run, config=["experiment=small-debugger"], targets=targets)
    assert code == 1 and "no step trained anything: of 2 groups 2 were dropped as constant" in text, text
    (folder,) = (run / "results/progress/train_rl/small-debugger").iterdir()
    (step,) = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    assert step["rollouts"] == 4 and step["rate/lost"] == 0 and step["tokens/sampled"] > 0, step
