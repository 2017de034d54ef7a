"""The base model: its text, its vocabulary, and that training is repeatable."""

import itertools
import json
import re

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import MODEL, REPO, SFT, SUBSET
from swelab.records import InputError
from swelab.sft.demo_model.base_corpus import World, functions_in
from swelab.tasks import drill
from swelab.tasks.split import side_of

RECIPE = recipes.complete(
    MODEL,
    {
        "source": "drill",
        "repo": "drill",
        "heldout_share": 0.15,
        "train": {"steps": 4, "batch_size": 2, "warmup_steps": 1},
    },
    "test",
)


@pytest.fixture(scope="module")
def archive():
    return drill.build_repo(recipes.load_named(REPO, "drill"))


@pytest.fixture(scope="module")
def world(archive):
    return World(archive, "drill", RECIPE.heldout_share)


def test_the_split_of_the_text_is_the_split_of_the_tasks():
    shares = {recipes.load_named(SUBSET, f"drill-{side}").heldout_share for side in ("train", "heldout")}
    assert shares == {recipes.load_named(MODEL, "tiny").heldout_share}


def test_no_heldout_function_and_no_agent_turn_in_the_text(world, archive):
    from swelab.sft.demo_model.base_model import VOCABULARY_DOCUMENTS

    recipe = recipes.load_named(MODEL, "tiny")
    heldout = {
        name
        for path, name in functions_in(archive, "drill")
        if side_of("drill", f"{path}::{name}", recipe.heldout_share) == "heldout"
    }
    assert len(heldout) >= recipes.load_named(SUBSET, "drill-heldout").limit
    trained = recipe.train.steps * recipe.train.batch_size
    # The documents from which the vocabulary is made, and those for training.
    for seed, count in ((recipe.seed + 1, VOCABULARY_DOCUMENTS), (recipe.seed + 2, trained)):
        for document in itertools.islice(world.documents(seed, count), count):
            words = set(re.findall(r"(?:test_)?([a-z]+_[a-z]+)", document.text))
            assert not words & heldout
            assert not any(
                mark in document.text for mark in ("```", "assistant", "exit 0", "COMPLETE_TASK", "<|im")
            )
            assert sum(document.text.count(command) for command in ("grep ", "sed ", "pytest ", "@@\n")) <= 1


def test_archive_that_is_none(world):
    with pytest.raises(InputError, match="not a usable archive"):
        World(b"x" * 2000, "drill", 0.1)


@pytest.fixture(scope="module")
def made(world, tmp_path_factory):
    from swelab.sft.demo_model.base_model import make_base_model

    folders = [tmp_path_factory.mktemp("model") for _ in range(2)]
    return folders, [make_base_model(RECIPE, world, folder) for folder in folders]


def test_the_same_recipe_gives_the_same_files(made):
    (first, second), results = made
    assert sorted(p.name for p in first.iterdir()) == sorted(p.name for p in second.iterdir())
    for path in first.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes(), path.name
    assert results[0][1] == results[1][1]


def test_words_are_one_token_wherever_they_stand(made):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(made[0][0] / "tokenizer.json"))
    for text in ("fit_anchor in depot/batch.py", "'def fit_anchor' depot/batch.py\n", "::test_fit_anchor(a)"):
        tokens = tokenizer.encode(text).tokens
        assert {"fit", "anchor"} <= set(tokens), tokens
    assert (
        tokenizer.decode(tokenizer.encode("exit 0\n12:def é(ß) 中 😀\n").ids) == "exit 0\n12:def é(ß) 中 😀\n"
    )


def test_transformers_and_torchtune_agree_on_the_model(made, monkeypatch):
    """By the checks that every fine-tuned checkpoint must pass."""
    import torch

    from swelab.files.weights import check_weights
    from swelab.sft.train.checkpoint_parity import compare_logits
    from swelab.sft.train.torchtune_bridge import torchtune_config

    folder = made[0][0]
    assert check_weights(folder)["architectures"] == ["Qwen2ForCausalLM"]
    train = recipes.complete(SFT, {"base": "tiny", "train": {"device": "cpu"}}, "test").train
    settings = torchtune_config(folder, folder / "none.jsonl", folder / "out", train)
    tokens = torch.arange(5, 60).tolist()
    assert compare_logits(folder, settings, tokens)["max_logit_difference"] < 1e-4
    assert json.loads((folder / "config.json").read_text())["vocab_size"] % 64 == 0
