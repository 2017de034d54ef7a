"""Measures peaks of memory, of training on a CPU against its estimates, and of every stage.

    python -m benchmarks.memory [estimates|stages ...]

Prints MiB and ratios. Each stage runs on few and on many trajectories. Exit code 1 if an estimate is off its
peak by a factor of more than 1.5 (RL) or 2 (SFT), or if a stage's peak grows by more than half of the size of
the additional trajectories.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.workflow import spend, stages
from benchmarks.workflow_world import make_world
from swelab.configs import recipes
from swelab.configs.kinds import RL, SFT
from swelab.console.terminal import run_script
from swelab.files.model_config import ModelConfig

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
CHECKPOINTED = {"activation_checkpointing": True}
SETTINGS = {
    ("sft", "plain"): {},
    ("sft", "checkpointed"): CHECKPOINTED,
    ("sft", "adapters"): {**CHECKPOINTED, "lora": {"rank": 8}},
    ("rl", "plain"): {},
    ("rl", "checkpointed"): CHECKPOINTED,
}
BOUNDS = {"sft": 2.0, "rl": 1.5}
BATCH, TOKENS = 4, 512
TRAJECTORY, FEW, MANY = 1_000_000, 24, 72


def recipe_of(kind: str, train: dict):
    """Returns the recipe whose memory is estimated and measured."""
    if kind == "sft":
        return recipes.complete(SFT, {"base": "x", "train": train}, "r")
    steps = {"steps": 1, "batch_tokens": 4096, "dtype": "fp32", "device": "cpu", **train}
    rollouts = {"context_length": TOKENS, "max_tokens": 64}
    whole = {"start": "x", "subset": "s", "scaffold": "demo", "rollouts": rollouts, "train": steps}
    return recipes.complete(RL, whole, "r")


def estimate(kind: str, train: dict) -> float:
    """Returns the estimated bytes, computed as in the preflight."""
    from swelab.rl.memory_needs import PROGRAM, learner_needs
    from swelab.sft.train.preflight import rank_memory

    recipe, config = recipe_of(kind, train), ModelConfig.of(SHAPE)
    if kind == "sft":
        return rank_memory(config, recipe.train, 1, BATCH, TOKENS, 4).total
    return learner_needs(recipe, config, "fp32").total + PROGRAM


def two_sft_steps(train: dict) -> None:
    """Runs two optimizer steps on torchtune's model."""
    import torch
    from omegaconf import OmegaConf
    from torchtune import modules, training
    from torchtune.config import instantiate
    from torchtune.modules.loss import CEWithChunkedOutputLoss
    from torchtune.modules.peft import get_adapter_params, set_trainable_params

    from swelab.sft.train.torchtune_bridge import base_model, with_adapters

    recipe = recipe_of("sft", train).train
    model = instantiate(OmegaConf.create(with_adapters(base_model(ModelConfig.of(SHAPE)), recipe)))
    if recipe.lora:
        set_trainable_params(model, get_adapter_params(model))
    if recipe.activation_checkpointing:
        training.set_activation_checkpointing(model, auto_wrap_policy={modules.TransformerSelfAttentionLayer})
    loss = CEWithChunkedOutputLoss()
    model.set_num_output_chunks(loss.num_output_chunks)
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(weights, lr=1e-4, fused=True)
    data = torch.randint(0, SHAPE["vocab_size"], (BATCH, TOKENS))
    for _ in range(2):
        loss(model(data), data).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def two_rl_steps(train: dict) -> None:
    """Runs two learner steps on samples of which all tokens except the first are trained."""
    from transformers import AutoConfig, AutoModelForCausalLM

    from swelab.rl.learner import Learner, TrainingSample
    from swelab.rl.samples import Sample

    recipe, chance = recipe_of("rl", train), random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        AutoModelForCausalLM.from_config(AutoConfig.for_model(**SHAPE)).save_pretrained(folder)
        learner = Learner(Path(folder), recipe)
    mask, samples = [0] + [1] * (TOKENS - 1), []
    for number in range(2 * recipe.train.batch_tokens // TOKENS):
        ids = [chance.randrange(SHAPE["vocab_size"]) for _ in range(TOKENS)]
        sample = Sample(ids, mask, [-8.0] * TOKENS, [trained - 1 for trained in mask])
        weights = [trained / TOKENS for trained in mask]
        samples.append(TrainingSample(sample, [1.0] * TOKENS, weights, str(number)))
    for _ in range(2):
        learner.train(samples)


def own_peak(kind: str, train: dict) -> int:
    """Returns the peak bytes of this process.

    For SFT, returns only the growth, because its estimate omits the program.
    """
    import torch
    import torchtune  # noqa: F401  what a program of this kind holds before it begins

    from swelab.sft.train.step_log import own_peak as peak_kib

    torch.set_num_threads(1)
    before = peak_kib() if kind == "sft" else 0
    {"sft": two_sft_steps, "rl": two_rl_steps}[kind](train)
    return int((peak_kib() - before) * 1024)


def estimates() -> bool:
    """Prints each estimate next to its measured peak. Returns whether all estimates are within BOUNDS."""
    near = True
    # Freed memory is returned to the system immediately, since we measure the process's memory.
    env = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536"}
    for (kind, name), train in SETTINGS.items():
        command = [sys.executable, "-m", "benchmarks.memory", "--peak", kind, json.dumps(train)]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
        peak, expected = int(done.stdout.split()[-1]), estimate(kind, train)
        ratio = expected / peak
        near &= 1 / BOUNDS[kind] < ratio < BOUNDS[kind]
        mib = f"measured {peak >> 20:6} MiB   estimated {int(expected) >> 20:6} MiB"
        print(f"{kind:4} {name:13} {mib}   ratio {ratio:.2f}", flush=True)
    return near


def stage_peaks(folder: Path, instances: int) -> dict[str, int]:
    """Returns each script's peak resident bytes, measured with idle agents and graders."""
    world = make_world(folder, instances, 1, heldout=2, heldout_shards=1)
    log = folder / "idle.log"
    # at_once is below both numbers of instances, so that both runs hold equally many. One arena: otherwise
    # the allocator keeps about 70 MB that threads of the tokenizer have freed.
    settings = {"SWELAB_IDLE_BYTES": str(TRAJECTORY), "MALLOC_ARENA_MAX": "1"}
    target = "results/regrades/scale-expert/scale-train.json"
    spend(world, target, "--cores", "2", "--quiet", "all", at_once=2, log=log, **settings)
    return {name: stage.peak for name, stage in stages(log).items()}


def flat_stages() -> bool:
    """Prints each stage's peaks. Returns whether no stage holds all trajectories in memory.

    A rollout job may hold 22 trajectories.
    """
    with tempfile.TemporaryDirectory() as folder:
        few, many = (stage_peaks(Path(folder) / str(count), count) for count in (FEW, MANY))
    print(f"peaks with {FEW} and {MANY} trajectories of {TRAJECTORY / 1e6:.0f} MB")
    for name in sorted(many):
        grown = (many[name] - few[name]) / TRAJECTORY
        print(f"{name:24} {few[name] / 1e6:6.0f} MB {many[name] / 1e6:6.0f} MB   {grown:5.1f} more held")
    return max(many[name] - few[name] for name in many) < (MANY - FEW) / 2 * TRAJECTORY


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", help="default: both")
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peak:
        print(own_peak(args.peak[0], json.loads(args.peak[1])))
        return 0
    parts = {"estimates": estimates, "stages": flat_stages}
    unknown = [part for part in args.parts if part not in parts]
    if unknown:
        parser.error(f"no part {unknown[0]!r}; expected {' or '.join(parts)}")
    verdicts = [parts[part]() for part in args.parts or parts]
    return int(not all(verdicts))


if __name__ == "__main__":
    run_script(main)
