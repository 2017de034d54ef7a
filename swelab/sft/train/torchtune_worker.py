"""Runs a recipe of torchtune, by its name, in each process of a training.

[torchrun] -m swelab.sft.train.torchtune_worker --recipe <torchtune's name> --config <file> [--steps <folder>]

Calls of torchtune 0.6 that need a GPU do nothing on a CPU. With --steps, the state is saved between steps and
restored (`swelab.sft.train.step_states`), and weights are written once, after the last epoch.
"""

import argparse
import runpy
from pathlib import Path
from typing import Any

import torch
import torchtune
from omegaconf import DictConfig, OmegaConf
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors
from torchtune import config, training
from torchtune.recipe_interfaces import FTRecipeInterface

from swelab.sft.train.planned_batches import over_plan
from swelab.sft.train.step_states import StepStates

RECIPES = Path(torchtune.__file__).parent.parent / "recipes"


def recipe_class(name: str) -> type:
    """Returns the class of torchtune's recipe `name`."""
    found = runpy.run_path(str(RECIPES / f"{name}.py"), run_name="torchtune_recipe").values()
    (only,) = (each for each in found if isinstance(each, type) and FTRecipeInterface in each.__mro__[1:])
    return only


def without_gpu() -> None:
    """Makes torchtune's recipes for several GPUs run on a machine without a GPU."""
    training.get_memory_stats = lambda device: {}
    training.log_memory_stats = lambda stats: None
    for name in ("empty_cache", "reset_peak_memory_stats"):
        setattr(torch.cpu, name, lambda: None)


def whole_on_each_rank() -> None:
    """Makes torchtune's distributed recipe keep all weights in every process.

    torchtune shards weights with FSDP, which averages gradients over the processes in each backward pass.
    Before a step, torchtune scales the gradients. Here they are averaged and scaled once, before a step.
    """
    training.shard_model = lambda **_: None
    training.scale_grads = average_and_scale


def average_and_scale(model: torch.nn.Module, scaler: torch.Tensor) -> None:
    """Replaces every gradient by its mean over all processes, times `scaler`."""
    gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
    together = _flatten_dense_tensors(gradients)
    torch.distributed.all_reduce(together)
    together *= scaler / torch.distributed.get_world_size()
    for gradient, mean in zip(gradients, _unflatten_dense_tensors(together, gradients), strict=True):
        gradient.copy_(mean)


def save_last_epoch_only(recipe: Any, last: int) -> None:
    """Makes the recipe write weights only after epoch `last`. A resumed run needs only the saved states."""
    owner = getattr(recipe, "_checkpoint_client", recipe)
    save = owner.save_checkpoint

    def save_last(*arguments: Any, epoch: int, **named: Any) -> None:
        if epoch == last:
            save(*arguments, epoch=epoch, **named)

    owner.save_checkpoint = save_last


def train(name: str, settings: DictConfig, states: StepStates | None) -> None:
    """Trains with torchtune's recipe `name`, from the last saved step if there is one."""
    cuda = torch.cuda.is_available()
    if not cuda:
        without_gpu()
    # The full recipe initializes the process group itself.
    if name.endswith("_distributed") and name != "full_finetune_distributed":
        torch.distributed.init_process_group("cuda:nccl,cpu:gloo" if cuda else "gloo")
    if name.endswith("_distributed") and not settings.get("sharded", True):
        whole_on_each_rank()
    config.log_config(recipe_name=name, cfg=settings)
    kind = recipe_class(name)
    recipe = (over_plan(kind) if "plan" in settings.dataset else kind)(cfg=settings)
    recipe.setup(cfg=settings)
    if states:
        states.attach(recipe)
        save_last_epoch_only(recipe, settings.epochs - 1)
    recipe.train()
    recipe.cleanup()


def main() -> None:
    """Runs one process of a training from the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--recipe", required=True, help="torchtune's name of the recipe")
    parser.add_argument("--config", type=Path, required=True, help="configuration of the recipe, YAML")
    parser.add_argument("--steps", type=Path, help="folder for the state between steps")
    parser.add_argument("--every", type=int, default=0, help="steps between saves; 0: at ends of epochs")
    args = parser.parse_args()
    settings = OmegaConf.load(args.config)
    assert isinstance(settings, DictConfig)
    train(args.recipe, settings, StepStates(args.steps, args.every) if args.steps else None)


if __name__ == "__main__":
    main()
