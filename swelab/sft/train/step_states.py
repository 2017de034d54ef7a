"""Saves the state of a training between two optimizer steps, and restores it exactly.

torchtune's recipes can resume only at the start of an epoch. Here each process writes its own part of the
state. A part has the process's shards of the weights and of the optimizer's moments. It also has the position
in the schedule and the states of the random generators. No process gathers the parts of other processes.
Frozen weights are not written. A resumed run needs the same number of processes.
"""

import itertools
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor

GROUP_KEYS = ("lr", "initial_lr")
SCHEDULE_KEYS = ("last_epoch", "_step_count", "_last_lr")


class StepStates:
    """Saves a recipe's state in `folder` every few steps and at the ends of epochs.
    Only the last state is kept."""

    def __init__(self, folder: Path, every: int):
        """every: optimizer steps between saves. 0 saves only at the ends of epochs."""
        self.folder, self.every, self.rank, self.saved = folder, every, 0, 0

    def attach(self, recipe: Any) -> None:
        """Restores a recipe to the last saved step, and saves its later steps.
        Call this after the recipe's setup."""
        self.rank = distributed.get_rank() if distributed.is_initialized() else 0
        self.recipe, self.steps = recipe, recipe._steps_per_epoch
        generators = self._restore()
        epoch = min(recipe.global_step // self.steps, recipe.total_epochs - 1)
        recipe.epochs_run = epoch
        accumulation = recipe._gradient_accumulation_steps
        taken = (recipe.global_step - epoch * self.steps) * accumulation
        recipe._dataloader = Batches(recipe._dataloader, taken, self.steps * accumulation, generators)
        recipe._profiler = AfterStep(self._after_step)

    def _after_step(self) -> None:
        step = self.recipe.global_step
        due = step % self.steps == 0 or (self.every and step % self.every == 0)
        if due and step != self.saved:
            self.save(step)

    def save(self, step: int) -> None:
        """Writes the complete state after `step`, then removes the previous state.
        All processes must call this method."""
        part, whole = self.folder / f"step_{step}.part", self.folder / f"step_{step}"
        part.mkdir(parents=True, exist_ok=True)
        with open(part / f"{self.rank}.pt", "wb") as stream:
            torch.save(self._state(), stream)
            stream.flush()
            os.fsync(stream.fileno())
        _barrier()
        if self.rank == 0:
            os.replace(part, whole)
            for other in self.folder.glob("step_*"):
                if other != whole:
                    shutil.rmtree(other)
        _barrier()
        self.saved = step

    def _state(self) -> dict[str, Any]:
        schedule = self.recipe._lr_scheduler
        cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
        return {
            "step": self.recipe.global_step,
            "weights": {
                name: _local(weight) for name, weight in _trained_weights(self.recipe._model).items()
            },
            "optimizers": [_optimizer_state(each) for each in _optimizers(self.recipe)],
            "schedule": {key: getattr(schedule, key) for key in SCHEDULE_KEYS},
            "generators": [torch.get_rng_state(), cuda],
        }

    def _restore(self) -> list[Tensor | None]:
        """Loads the last saved state into the recipe.
        Returns the states of the random generators, or [] if no state was saved."""
        if self.rank == 0:
            for part in self.folder.glob("step_*.part"):
                shutil.rmtree(part)
        _barrier()
        found = last_step(self.folder)
        if not found:
            return []
        path = self.folder / f"step_{found}" / f"{self.rank}.pt"
        # We map the file into CPU memory, because a GPU with the model may have no room for a second copy.
        state = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        weights = _trained_weights(self.recipe._model)
        if weights.keys() != state["weights"].keys():
            raise RuntimeError(f"{path} is the state of another model")
        with torch.no_grad():
            for name, weight in weights.items():
                _local(weight).copy_(state["weights"][name])
        for optimizer, saved in zip(_optimizers(self.recipe), state["optimizers"], strict=True):
            _restore_optimizer(optimizer, saved)
        for key in SCHEDULE_KEYS:
            setattr(self.recipe._lr_scheduler, key, state["schedule"][key])
        self.recipe.global_step = self.saved = state["step"]
        return [None if each is None else each.clone() for each in state["generators"]]


class Batches:
    """The first `count` batches of each epoch. The resumed epoch starts after `consumed` batches.

    The last batches of an epoch may not fill a step. torchtune would keep their gradients for the first step
    of the next epoch, and a saved state does not contain them. So these batches are omitted.
    """

    def __init__(self, loader: Any, consumed: int, count: int, generators: list[Tensor | None]):
        self.loader, self.consumed, self.count, self.generators = loader, consumed, count, generators

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def __iter__(self) -> Iterator[Any]:
        middle, self.consumed = self.consumed, 0
        if not middle:  # starting a loader draws a random number
            self._set_generators()
        batches = itertools.islice(iter(self.loader), middle, self.count)
        first = list(itertools.islice(batches, 1))
        if middle:
            self._set_generators()
        return itertools.chain(first, batches)

    def _set_generators(self) -> None:
        for state, place in zip(self.generators, (torch, torch.cuda)):
            if state is not None:
                place.set_rng_state(state)
        self.generators = []


class AfterStep:
    """Replaces a recipe's profiler, because recipes call the profiler's `step` after every step."""

    def __init__(self, step: Callable[[], None]):
        self.step = step

    def start(self) -> None:
        """Starts nothing."""

    def stop(self) -> None:
        """Stops nothing."""

    def __enter__(self) -> "AfterStep":
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def last_step(folder: Path) -> int:
    """Returns the last step whose state was saved completely, or 0 if there is none."""
    steps = [int(name) for path in folder.glob("step_*") if (name := path.name[5:]).isdigit()]
    return max(steps, default=0)


def _barrier() -> None:
    if distributed.is_initialized():
        distributed.barrier()


def _trained_weights(model: Any) -> dict[str, Tensor]:
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def _optimizers(recipe: Any) -> list[Any]:
    """Returns the recipe's optimizer, or one per weight if the optimizer steps in the backward pass."""
    if recipe._optimizer is not None:
        return [recipe._optimizer]
    return list(recipe._optim_ckpt_wrapper.optim_map.values())


def _local(tensor: Tensor) -> Tensor:
    """Returns this process's part of a tensor, in the same memory."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def _weights(optimizer: Any) -> list[Tensor]:
    return [weight for group in optimizer.param_groups for weight in group["params"]]


def _optimizer_state(optimizer: Any) -> dict[str, Any]:
    moments = [
        {name: _local(value) for name, value in optimizer.state.get(weight, {}).items()}
        for weight in _weights(optimizer)
    ]
    groups = [{key: group[key] for key in GROUP_KEYS if key in group} for group in optimizer.param_groups]
    return {"moments": moments, "groups": groups}


def _restore_optimizer(optimizer: Any, saved: dict[str, Any]) -> None:
    for weight, moments in zip(_weights(optimizer), saved["moments"], strict=True):
        for name, value in moments.items():
            optimizer.state[weight][name] = _like(weight, value)
    for group, values in zip(optimizer.param_groups, saved["groups"], strict=True):
        group.update(values)


def _like(weight: Tensor, value: Tensor) -> Tensor:
    """Shards `value` over processes as `weight` is sharded.
    A step count (a tensor without dimensions) is the same in every process."""
    value = value.to(weight.device, copy=True)
    if not isinstance(weight, DTensor) or value.dim() == 0:
        return value
    return DTensor.from_local(
        value, weight.device_mesh, weight.placements, shape=weight.shape, stride=weight.stride()
    )
