"""The estimate of memory against peaks that were measured on the CPU, for each kind of setting."""

import json
import os
import subprocess
import sys

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.files.model_config import ModelConfig
from swelab.sft.train.memory import estimate

pytestmark = [pytest.mark.full, pytest.mark.alone]

CONFIG = ModelConfig.of({
    "vocab_size": 4096,
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "hidden_size": 256,
    "intermediate_size": 1024,
    "max_position_embeddings": 1024,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
})  # fmt: skip
BATCH, TOKENS = 4, 512
SETTINGS = {
    "plain": {},
    "checkpointed": {"activation_checkpointing": True},
    "adapters": {"lora": {"rank": 8}, "activation_checkpointing": True},
}


@pytest.fixture(scope="module")
def measured():
    made = [{"base": "x", "train": train} for train in SETTINGS.values()]
    found = [recipes.complete(SFT, recipe, "r").train for recipe in made]
    done = subprocess.run(
        [sys.executable, "-m", "tests.contract.peak_memory"],
        input="\n".join(json.dumps([CONFIG, train.plain(), BATCH, TOKENS]) for train in found),
        capture_output=True,
        text=True,
        # What is freed goes back to the system at once, as its memory is what is measured.
        env={**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"},
    )
    assert done.returncode == 0, done.stderr
    peaks = [int(line) for line in done.stdout.splitlines()]
    return {name: (peak, estimate(CONFIG, train, 1, BATCH, TOKENS, 4).total)
            for name, peak, train in zip(SETTINGS, peaks, found, strict=True)}  # fmt: skip


@pytest.mark.parametrize("name", SETTINGS)
def test_the_estimate_is_of_the_order_of_the_peak(name, measured):
    peak, expected = measured[name]
    assert peak / 2 < expected < 2 * peak, f"{peak >> 20} MiB measured, {int(expected) >> 20} MiB estimated"


def test_checkpointing_is_told_apart(measured):
    for number in (0, 1):
        assert measured["checkpointed"][number] < measured["plain"][number] / 1.5
