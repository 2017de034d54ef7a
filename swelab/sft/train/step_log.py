"""Writes the log during a training: steps.txt, metrics.jsonl, TensorBoard, Weights & Biases.

torchtune uses this log in place of its own logger, and TRL's callback calls it. Only the first rank has a
log.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from swelab.files.text_lines import lines_of
from swelab.records import Record, read_json
from swelab.records.training_records import LossRow
from swelab.sft.train.metrics import PlannedRun, metrics_row, peak_flops
from swelab.sft.train.tensorboard_wandb import Boards

STEPS, METRICS = "steps.txt", "metrics.jsonl"
SPEED = "tokens_per_second_per_gpu"
"""torchtune's name for the speed: tokens with loss per second and process."""
STEP = re.compile(r"^Step (\d+) \| (.*)$")
LOGGED = {
    "loss": "loss",
    "lr": "lr",
    "tokens_per_second": "tokens_per_second_per_gpu",
    "grad_norm": "grad_norm",
    "reward_margin": "rewards/margins",
    "reward_accuracy": "rewards/accuracies",
    "chosen_log_prob": "log_probs/chosen",
    "rejected_log_prob": "log_probs/rejected",
}


class StepLog:
    """Writes the log to the folder `log_dir`. planned: path of a `PlannedRun` file."""

    def __init__(self, log_dir: str, planned: str, **_: Any):
        self.folder = Path(log_dir)
        self.folder.mkdir(parents=True, exist_ok=True)
        run = PlannedRun.of(read_json(planned))
        self.steps = {step.step: step for step in run.steps}
        self.device, self.ranks = run.device, run.ranks
        one = peak_flops(self.device)
        self.peak = one * self.ranks if one else None
        self.text = open(self.folder / STEPS, "a", encoding="utf-8")
        self.rows = open(self.folder / METRICS, "a", encoding="utf-8")
        self.boards = Boards(self.folder, run.wandb, self.folder.parent, "train/")

    def log_config(self, config: Any) -> None:
        """Does nothing, because torchtune's configuration is already in a file."""

    def log(self, name: str, data: Any, step: int) -> None:
        """Logs one value of a step."""
        self.log_dict({name: data}, step)

    def log_dict(self, payload: Mapping[str, Any], step: int) -> None:
        """Logs a step. payload: loss, lr, ..., and either seconds or torchtune's tokens per second."""
        figures = {name: float(value) for name, value in payload.items()}
        planned = self.steps.get(step)
        if planned and "seconds" in figures:
            figures[SPEED] = planned.trained_tokens / figures.pop("seconds") / self.ranks
        self.text.write(f"Step {step} | " + " ".join(f"{k}:{v}" for k, v in figures.items()) + "\n")
        self.text.flush()
        if planned:
            seconds = planned.trained_tokens / figures.pop(SPEED) / self.ranks
            memory = peak_memory(self.device)
            row = metrics_row(planned, {**figures, "seconds": seconds, "peak_memory_mib": memory}, self.peak)
            self._tell(step, row)

    def _tell(self, step: int, row: Record) -> None:
        self.rows.write(json.dumps(row) + "\n")
        self.rows.flush()
        values = {name: value for name, value in row.items() if name != "step" and value is not None}
        self.boards.add(step, values)

    def close(self) -> None:
        """Closes files, TensorBoard and Weights & Biases."""
        self.text.close()
        self.rows.close()
        self.boards.close()


def peak_memory(device: str) -> float:
    """Returns this process's peak memory in MiB: its tensors on a GPU, the whole process on a CPU."""
    if device == "cuda":
        return torch.cuda.max_memory_allocated() / 2**20
    return own_peak() / 2**10


def own_peak() -> int:
    """Returns this process's peak memory in KiB since its program started.
    Linux reports this as VmHWM. `ru_maxrss` would include the peak of the parent process."""
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")
    )
    return int(line.split()[1])


def step_rows(path: Path) -> list[LossRow]:
    """Reads steps.txt. Rows also have "lr", "tokens_per_second" and "grad_norm", if these were logged.

    Rows of DPO also have rewards and log-probabilities. Speeds count tokens with loss, or all tokens for DPO.
    If a step was repeated after a kill, only its last values are returned.
    """
    rows: dict[int, LossRow] = {}
    for text in lines_of(path.read_text(encoding="utf-8")):
        match = STEP.match(text)
        if match:
            values = dict(part.split(":", 1) for part in match[2].split() if ":" in part)
            row = {name: _number(values[theirs]) for name, theirs in LOGGED.items() if theirs in values}
            rows[int(match[1])] = LossRow.of({"step": int(match[1]), **row})
    return [rows[step] for step in sorted(rows)]


def _number(text: str) -> float:
    """Parses a float from `1.5` or `tensor(1.5)`."""
    return float(text.removeprefix("tensor(").rstrip(",)"))
