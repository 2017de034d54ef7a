"""Checks whether the training settings of a recipe exclude one another. Does not import torch."""

import os
from collections.abc import Mapping

from swelab.configs.kinds.sft import Sft
from swelab.records import InputError
from swelab.sft.train.trainer import TRAINERS, open_trainer


def check_settings(recipe: Sft) -> None:
    """Raises InputError for settings that exclude one another.

    `packed` excludes `group_by_length`. DPO excludes both, and `selection.unresolved`. Also raises InputError
    for a setting that the trainer does not support, and for Weights & Biases without its package or a key.
    """
    train = recipe.train
    check_wandb(recipe.wandb, os.environ)
    if train.packed and train.group_by_length:
        raise InputError("train.packed with group_by_length", expected="one of them")
    if train.dpo and (train.packed or train.group_by_length):
        raise InputError("train.dpo with packed or group_by_length", expected="neither: rows are pairs")
    if train.dpo and recipe.selection.unresolved:
        raise InputError("train.dpo with selection.unresolved", expected="false: each pair has a failed side")
    trainer = open_trainer(recipe.trainer)
    if told := next((name for name in trainer.lacks if getattr(train, name)), ""):
        able = [name for name in TRAINERS if told not in open_trainer(name).lacks]
        raise InputError(
            f"trainer {recipe.trainer} with train.{told}", expected=f"trainer: {' or '.join(able)}"
        )
    full = recipe.recipe.startswith("full_finetune") and not train.optimizer_in_bwd
    if not train.sharded and not (trainer.replicates and full):
        expected = "trainer: torchtune, recipe: full_finetune_..., no optimizer_in_bwd"
        raise InputError("train.sharded is false", expected=expected)


def check_wandb(project: str, env: Mapping[str, str]) -> None:
    """Raises InputError if `project` is not empty, but the package wandb or its key is missing."""
    if not project:
        return
    try:
        import wandb  # noqa: F401
    except ImportError:
        raise InputError(f"wandb: {project}, and no package wandb", expected="pip install wandb") from None
    if not env.get("WANDB_API_KEY") and env.get("WANDB_MODE") not in ("offline", "disabled"):
        told = "WANDB_API_KEY in the environment, or WANDB_MODE=offline"
        raise InputError(f"wandb: {project}, and no key", expected=told)
