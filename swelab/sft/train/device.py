"""Where a training runs and in which type of numbers, where its settings say "auto"."""

from typing import Protocol


class Asking(Protocol):
    """The `train` settings of a recipe."""

    @property
    def device(self) -> str:
        """auto, cpu or cuda."""
        ...

    @property
    def dtype(self) -> str:
        """auto, fp32 or bf16."""
        ...


def device_of(train: Asking, gpus: bool | None = None) -> str:
    """ "cuda" or "cpu": where a recipe's `train` settings run.

    gpus: whether there is a GPU; None asks this machine. Before a job starts, its recipe knows.
    """
    if train.device != "auto":
        return str(train.device)
    if gpus is None:
        import torch

        gpus = torch.cuda.is_available()
    return "cuda" if gpus else "cpu"


def dtype_of(train: Asking, gpus: bool | None = None) -> str:
    """ "fp32" or "bf16": the type of weights and optimizer. "auto" is bf16 on a GPU and fp32 on a CPU."""
    if train.dtype != "auto":
        return str(train.dtype)
    return {"cpu": "fp32", "cuda": "bf16"}[device_of(train, gpus)]
