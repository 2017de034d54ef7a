"""Keeps parts of a training run's log: a table, a plot and TensorBoard's files."""

import os
import shutil
from pathlib import Path

from swelab.records import write_bytes
from swelab.sft.train.metrics import read_metrics, write_table
from swelab.sft.train.plots import plot
from swelab.sft.train.step_log import METRICS
from swelab.sft.train.tensorboard_wandb import BOARD

PLOT = "training.svg"


def keep_log(work: Path) -> None:
    """Moves the log out of the folder `work`/output, which is removed afterwards."""
    for name in (METRICS, BOARD):
        kept, found = work / name, work / "output" / name
        shutil.rmtree(kept, ignore_errors=True)
        if found.exists():
            os.replace(found, kept)


def publish_log(work: Path, name: str, metrics: Path) -> None:
    """Writes the table `metrics` of the run in `work`.
    Writes a plot and TensorBoard's files next to the table."""
    rows, board = read_metrics(work / METRICS), metrics.with_name(BOARD)
    write_table(metrics, rows)
    write_bytes(metrics.with_name(PLOT), plot({name: rows}).encode())
    shutil.rmtree(board, ignore_errors=True)
    board.mkdir(parents=True)
    for path in sorted((work / BOARD).glob("events.*")):
        shutil.copyfile(path, board / path.name)
