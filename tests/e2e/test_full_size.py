"""The full-size recipe without a cluster: its plan, its settings, its model."""

import os
import shutil
import subprocess
import sys

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import SFT
from swelab.files.model_config import ModelConfig
from swelab.sft.train.ranks import ranks_of, share
from swelab.sft.train.torchtune_bridge import base_model
from tests.e2e.clone import make_clone

QWEN_7B = ModelConfig.of({
    "vocab_size": 152064,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
})  # fmt: skip
"""From the config.json of Qwen2.5-Coder-7B-Instruct."""


def plan(clone, *arguments):
    """Returns the output of a dry run, in its own network namespace if root may make one."""
    alone = ["unshare", "--net"] if os.geteuid() == 0 and shutil.which("unshare") else []
    words = [
        *alone,
        sys.executable,
        "-m",
        "snakemake",
        "-n",
        "--verbose",
        "results/verified_score.json",
        *arguments,
    ]
    done = subprocess.run(words, cwd=clone, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout + done.stderr


def jobs(text):
    """Returns a map: rule -> (number of jobs, resources of one job)."""
    counts = text.partition("Job stats:")[2].partition("\n\n")[0].splitlines()[3:]
    found = {line.split()[0]: [int(line.split()[1]), ""] for line in counts if len(line.split()) == 2}
    for block in text.split("rule ")[1:]:
        name = block.partition(":")[0]
        if name in found:
            found[name][1] = block.partition("resources: ")[2].partition("\n")[0]
    return found


def test_the_cluster_builds_it_by_default_and_plans_it_without_a_network(tmp_path):
    clone = make_clone(tmp_path / "swelab")
    text = plan(clone, "--profile", "slurm")
    found = jobs(text)
    assert {"fetch_model", "fetch_tasks", "pull_images", "rollout_hosted", "rollout"} < set(found)
    stages = {"validate_tasks", "grade", "build_sft_dataset", "train_sft", "score", "score_experiment"}
    assert stages < set(found)
    assert found["total"][0] < 300
    assert "slurm_partition=gpu, cpus_per_task=64, gpu=8, nodes=1" in found["train_sft"][1]
    assert "slurm_partition=gpu, cpus_per_task=16, gpu=2, nodes=1" in found["rollout"][1]
    assert "slurm_partition=cpu" in found["grade"][1]


def test_the_laptop_builds_the_demo_by_default():
    assert recipes.load("config", recipes.CONFIGS / "config.yaml")["experiment"] == "demo"


def test_eight_gpus_make_the_published_steps():
    recipe = recipes.load_named(SFT, "swesmith-7b")
    ranks = ranks_of(recipe)
    assert (ranks.total, ranks.gpus) == (8, 8)
    assert share(recipe.train, ranks) == {"batch_size": 1, "gradient_accumulation_steps": 1}


def test_the_published_model_is_described_to_torchtune_as_it_is():
    import torch
    from omegaconf import OmegaConf
    from torchtune.config import instantiate

    with torch.device("meta"):
        model = instantiate(OmegaConf.create(base_model(QWEN_7B)))
    assert sum(weight.numel() for weight in model.parameters()) == 7_615_616_512


@pytest.mark.parametrize("policy", ["qwen-coder-7b", "swesmith-7b"])
def test_its_policies_serve_the_published_context_on_two_gpus(policy):
    recipe = recipes.load_named("policy", policy)
    assert recipe["context_length"] == QWEN_7B["max_position_embeddings"] and recipe["job"]["gpus"] == 2
