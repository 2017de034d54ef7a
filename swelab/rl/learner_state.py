"""Saves and loads the state that a resumed run needs besides the weights. The state does not depend on the
number of ranks."""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor, distribute_tensor

from swelab.records import InputError

STATE = "learner.pt"


def whole(value: Any, everywhere: bool = True) -> Any:
    """Returns `value` with each sharded tensor gathered from all ranks, also in nested dicts and lists. All
    ranks must call this. everywhere: if false, this rank gets None instead of the gathered tensors."""
    if isinstance(value, dict):
        return {key: whole(each, everywhere) for key, each in value.items()}
    if isinstance(value, list):
        return [whole(each, everywhere) for each in value]
    if not isinstance(value, DTensor):
        return value
    full = value.full_tensor()
    return (full.detach().cpu() if value.ndim else full) if everywhere else None


def write_state(folder: Path, state: dict[str, Any]) -> None:
    """Writes the optimizer state, the number of steps and the random state into a checkpoint. Also writes the
    weights in float32 if the checkpoint's own are not."""
    torch.save(state, folder / STATE)


def read_state(
    folder: Path, optimizer: torch.optim.Optimizer, device: str, trained: Mapping[str, torch.Tensor]
) -> dict[str, int]:
    """Loads a checkpoint's optimizer state, and the weights that it holds in float32 into `trained`. Returns
    its numbers of steps and batches. If ranks share the weights, each rank loads its share. Raises
    InputError."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]
    try:
        shared = any(isinstance(weight, DTensor) for weight in weights)
        state = torch.load(folder / STATE, map_location="cpu" if shared else device, weights_only=True)
        moments = state["optimizer"]["state"]
        for number, weight in enumerate(weights):
            if isinstance(weight, DTensor) and number in moments:
                moments[number] = {name: _share(each, weight) for name, each in moments[number].items()}
        optimizer.load_state_dict(state["optimizer"])
        with torch.no_grad():
            for name, weight in state.get("weights", {}).items():
                own = trained[name]
                own.copy_(_share(weight, own) if isinstance(own, DTensor) else weight)
        torch.set_rng_state(state["random"].cpu())
        return {name: int(state[name]) for name in ("steps", "batches") if name != "batches" or name in state}
    except _UNREADABLE as error:
        why = "is not there" if isinstance(error, FileNotFoundError) else f"cannot be read: {error}"
        told = f"the optimizer's state {why}; without it training does not go on from this checkpoint"
        todo = f"remove {folder}: training goes on from the one before it, and samples nothing again"
        raise InputError(told, folder / STATE, f"the file that this training wrote; {todo}") from None


_UNREADABLE = (
    OSError,
    RuntimeError,
    ValueError,
    LookupError,
    EOFError,
    TypeError,
    AttributeError,
    pickle.UnpicklingError,
)


def _share(value: Any, weight: DTensor) -> Any:
    """Returns this rank's shard of `value` if it is a tensor with the shape of `weight`. Returns any other
    value unchanged."""
    if not isinstance(value, torch.Tensor) or value.shape != weight.shape:
        return value
    return distribute_tensor(
        value.to(weight.device), weight.device_mesh, weight.placements, src_data_rank=None
    )
