"""The picture of an experiment whose policy was trained by reinforcement learning."""

from types import SimpleNamespace

import pytest

from swelab.configs import recipes
from swelab.scores.report.pipeline import edges_of
from swelab.scores.report.reinforcement import sentences
from tests.conftest import ROOT

WEIGHTS = {"base": "model:tiny", "sft": "sft:demo", "start": "sft:demo-start", "rl": "rl:demo"}


def experiment(before, after):
    at = SimpleNamespace(recipe=lambda kind, name: recipes.load_named(kind, name, ROOT / "configs"))
    return SimpleNamespace(at=at, compared_weights=[WEIGHTS.get(before, ""), WEIGHTS[after]])


@pytest.mark.parametrize(
    "before, after, made",
    [
        ("base", "sft", {("base", "first"), ("checkpoint", "second")}),
        ("start", "rl", {("checkpoint", "first"), ("checkpoint", "learned"), ("learned", "second")}),
        ("base", "rl", {("base", "first"), ("checkpoint", "learned"), ("learned", "second")}),
        ("hosted", "sft", {("checkpoint", "second")}),
    ],
)
def test_a_score_hangs_on_the_weights_of_its_policy(before, after, made):
    edges = edges_of(experiment(before, after))
    found = {(source, target) for source, target in edges if target in ("first", "second", "learned")}
    assert found - {("bench", "first"), ("bench", "second")} == made


def test_what_was_learned_from_is_said():
    told = sentences(experiment("start", "rl"))
    assert "continued from the fine-tuned model" in told and "the tasks of drill-practice" in told
    assert sentences(experiment("base", "sft")) == ""
