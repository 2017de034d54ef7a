"""The picture of an experiment whose policy was trained by reinforcement learning."""

import re
from types import SimpleNamespace

import pytest

from swelab.configs import recipes
from swelab.scores.report.pipeline import (
    TALL,
    WIDE,
    Box,
    box,
    break_lines,
    corner,
    edge_path,
    edges_of,
    height,
)
from swelab.scores.report.reinforcement import sentences
from tests.conftest import ROOT

WEIGHTS = {
    "base": "model:tiny",
    "sft": "sft:demo",
    "start": "sft:demo-start",
    "rl": "rl:demo",
}


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


def test_a_long_arrow_of_the_tall_drawing_passes_between_the_columns():
    x, y = corner(TALL, (0, 4))
    path = edge_path(TALL, (0, 4), (1, 6))
    assert f"H{x + TALL.width + TALL.across / 2}V" in path and path.startswith(f"M{x + TALL.width / 2} ")
    assert "H" not in edge_path(WIDE, (4, 0), (4, 1)).partition("V")[0], "a box below is reached straight"


@pytest.mark.parametrize(
    "text, lines",
    [
        ("tasks/", ["tasks/"]),
        ("drill-heldout, forge-heldout", ["drill-heldout, forge-", "heldout"]),
        ("sft/swesmith-7b-local/dataset.jsonl", ["sft/swesmith-7b-local/", "dataset.jsonl"]),
        ("a" * 50, ["a" * 22, "a" * 22, "a" * 6]),
    ],
)
def test_a_text_that_does_not_fit_a_line_goes_on_in_the_next(text, lines):
    assert break_lines(text, 22) == lines


def test_a_box_is_as_high_as_its_lines_and_nothing_is_cut():
    long = Box("k", "Score of my-model-with-a-long-name", "1.0%, 2.0%", "x/" * 30, (0, 0), (0, 0))
    short = Box("s", "Graded", "1", "of 2", (1, 0), (0, 1))
    assert height([short]) < height([short, long]) == height([long])
    drawn = box(WIDE, long, 0, 0)
    at = [int(number) for number in re.findall(r'y="([0-9]+)"', drawn)]
    assert at == sorted(at) and at[-1] < height([long])
    assert "".join(re.findall(r">([^<]+)</text>", drawn)).endswith("x/" * 30) and "\u2026" not in drawn
