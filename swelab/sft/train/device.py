"""Resolves "auto" in a training's settings to a device and a number type."""

from swelab.configs.kinds import rl, sft

Settings = sft.Train | rl.Train
"""The `train` settings of an SFT or an RL recipe."""


def device_of(train: Settings, gpus: bool | None = None) -> str:
    """Returns the device of a recipe's `train` settings: "cuda" or "cpu".

    gpus: whether a GPU is available; None asks torch on this machine. For a job that has not started yet,
    callers pass whether the recipe requests GPUs.
    """
    if train.device != "auto":
        return train.device
    if gpus is None:
        import torch

        gpus = torch.cuda.is_available()
    return "cuda" if gpus else "cpu"


def dtype_of(train: Settings, gpus: bool | None = None) -> str:
    """Returns the type of weights and optimizer: "fp32" or "bf16".
    "auto" is bf16 on a GPU and fp32 on a CPU."""
    if train.dtype != "auto":
        return train.dtype
    return {"cpu": "fp32", "cuda": "bf16"}[device_of(train, gpus)]
