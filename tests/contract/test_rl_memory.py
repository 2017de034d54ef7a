"""The estimate of the learner's memory against peaks that the system counted, for kinds of setting."""

import json
import os
import subprocess
import sys

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.files.model_config import ModelConfig
from swelab.rl.memory_needs import PROGRAM, learner_needs

pytestmark = [pytest.mark.full, pytest.mark.alone]

SHAPE = {
    "model_type": "qwen2",
    "vocab_size": 4096,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
SETTINGS = {"plain": {}, "recomputed": {"activation_checkpointing": True}}


def recipe(train):
    return {
        "start": "x",
        "subset": "s",
        "scaffold": "demo",
        "rollouts": {"context_length": 512, "max_tokens": 64},
        "train": {"steps": 1, "batch_tokens": 4096, "dtype": "fp32", "device": "cpu", **train},
    }


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory") / "model"
    found = {}
    for name, train in SETTINGS.items():
        words = [folder, json.dumps(recipe(train)), json.dumps(SHAPE)]
        done = subprocess.run(
            [sys.executable, "-m", "tests.contract.peak_rl_memory", *words],
            capture_output=True,
            text=True,
            # What is freed goes back to the system at once, as its memory is what is measured.
            env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"},
        )
        assert done.returncode == 0, done.stderr
        needs = learner_needs(recipes.complete(RL, recipe(train), "r"), ModelConfig.of(SHAPE), "fp32")
        found[name] = int(done.stdout.split()[-1]), needs.total
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_the_estimate_is_close_to_the_peak(name, measured):
    peak, expected = measured[name]
    assert peak > 1.5 * PROGRAM
    assert peak / 1.5 < expected < 1.5 * peak, (
        f"{peak >> 20} MiB measured, {int(expected) >> 20} MiB estimated"
    )


def test_recomputed_activations_are_told_apart(measured):
    for number in (0, 1):
        assert measured["recomputed"][number] < measured["plain"][number] / 1.3
