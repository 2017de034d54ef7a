"""Draws curves of a training in TensorBoard and Weights & Biases."""

import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

BOARD = "tensorboard"


class Boards:
    """Draws a run's curves in `folder`/tensorboard. With a `project`, also draws them at Weights & Biases.
    wandb_folder: folder of that client's files and of the run's id. A resumed run keeps its id."""

    def __init__(self, folder: Path, project: str, wandb_folder: Path, prefix: str = ""):
        self._folder, self._prefix = folder, prefix
        self._board: SummaryWriter | None = None
        self._wandb = start_wandb(project, wandb_folder) if project else None

    def restart(self, rows: Iterable[tuple[int, Mapping[str, float]]]) -> None:
        """Draws the curves anew, because a killed run may not have drawn all its points.
        rows: (step, values) of all earlier steps."""
        shutil.rmtree(self._folder / BOARD, ignore_errors=True)
        for step, values in rows:
            self._draw(step, values)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """Adds the values of a step.
        A repeated step replaces its earlier values and all values after them."""
        self._draw(step, values)
        if self._wandb:
            self._wandb.log(dict(values), step=step)

    def _draw(self, step: int, values: Mapping[str, float]) -> None:
        if self._board is None:
            where = {"logdir": str(self._folder / BOARD), "filename_suffix": f".{step}"}
            self._board = SummaryWriter(**where, purge_step=step, flush_secs=10)
        for name, value in values.items():
            self._board.add_scalar(self._prefix + name, value, step)

    def close(self) -> None:
        """Writes the remaining values and ends the run."""
        if self._board:
            self._board.close()
        if self._wandb:
            self._wandb.finish()


def start_wandb(project: str, folder: Path) -> Any:
    """Starts a run at Weights & Biases, with its files in `folder`/wandb.
    If the run does not start, prints a message and returns None, so that training continues."""
    try:
        import wandb

        return wandb.init(project=project, dir=str(folder), resume="allow", id=_run_id(folder))
    except Exception as error:  # the client raises exceptions of many types
        print(f"wandb: not told of this run: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return None


def _run_id(folder: Path) -> str:
    """Returns the run's id at the service, which stays the same after a kill."""
    path = folder / "wandb.id"
    if not path.is_file():
        import secrets

        path.write_text(secrets.token_hex(8))
    return path.read_text()
