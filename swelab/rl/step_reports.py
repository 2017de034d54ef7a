"""Reports the progress of a training run: a line for each step, a progress bar, and curves."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from swelab.console.terminal import Progress, clock
from swelab.records import Record, read_jsonl
from swelab.rl import metrics
from swelab.rl.rollouts import RolledOut
from swelab.scores.statistics.one_rate import wilson
from swelab.sft.train.check_settings import check_wandb
from swelab.sft.train.tensorboard_wandb import Boards

TIMES = {"time/rollouts": "rollouts", "time/train": "training"}
"""Maps a figure to its name in a step's line. verl writes these figures after it saves a checkpoint. If verl
is killed in between, the step has no such figures."""


class Reports:
    """Receives the events of a training run, and ignores all of them."""

    def begin(self, steps: int, done: int, rollouts: int, finished: int) -> None:
        """Is called when a run of `steps` steps and `rollouts` rollouts begins. done: number of finished
        steps. finished: number of finished rollouts."""

    def rolled_out(self, done: RolledOut) -> None:
        """Is called when a rollout is finished, from any of many threads."""

    def step(self, line: Record) -> None:
        """Is called when a step is finished. line: the step's line in metrics.jsonl."""

    def on_validation(self, steps: int, figures: Record) -> None:
        """Is called when the policy was validated after `steps` steps."""

    def close(self) -> None:
        """Is called when the run has finished or stopped."""


class StepReports(Reports):
    """Writes lines and progress to standard error, and curves to `folder`/tensorboard.

    wandb: a Weights & Biases project that also receives the curves. Its run starts when the training begins.
    Raises InputError if this project cannot be used.
    """

    def __init__(self, folder: Path, wandb: str = "", stream: TextIO | None = None):
        check_wandb(wandb, os.environ)
        self._folder, self._wandb, self._stream = folder, wandb, stream or sys.stderr
        self._boards = Boards(folder, "", folder)
        self._steps, self._progress = 0, Progress(0, "", self._stream)

    def begin(self, steps: int, done: int, rollouts: int, finished: int) -> None:
        self._steps, metrics_file = steps, self._folder / "metrics.jsonl"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._boards = Boards(self._folder, self._wandb, self._folder)
        lines = read_jsonl(metrics_file) if metrics_file.exists() else ()
        self._boards.restart((line["step"], numbers(line)) for line in lines)
        self._progress = Progress(rollouts, f"step {min(done + 1, steps)} of {steps}", self._stream)
        self._progress.skip(finished)

    def rolled_out(self, done: RolledOut) -> None:
        self._progress.done(bool(done.grade.get("resolved")))

    def step(self, line: Record) -> None:
        self._boards.add(line["step"], numbers(line))
        self._progress.label = f"step {min(line['step'] + 1, self._steps)} of {self._steps}"
        self._say(step_line(line, self._steps))

    def on_validation(self, steps: int, figures: Record) -> None:
        self._boards.add(steps, numbers(figures))
        self._say(validation_line(steps, figures))

    def close(self) -> None:
        self._progress.close()
        self._boards.close()

    def _say(self, text: str) -> None:
        start = "\r\x1b[K" if self._stream.isatty() else ""
        print(start + text, file=self._stream, flush=True)


def numbers(line: Record) -> dict[str, float]:
    """Returns the figures of a line, without the step's number."""
    return {name: value for name, value in line.items() if name != "step" and isinstance(value, (int, float))}


def step_line(line: Mapping[str, float], steps: int) -> str:
    """Returns a line that describes a step. Figures that were not measured are omitted."""
    dropped = sum(value for name, value in line.items() if name.startswith("groups_dropped/"))
    untrained = f"{dropped:.0f} of {line['groups']:.0f} groups not trained" if dropped else ""
    if not line.get("train/tokens", 1):
        untrained = f"trained nothing: {metrics.untrained_reason([line])}"
    parts = [
        f"{line['rollouts']:.0f} rollouts",
        _part(line, "rate/resolved", "{:.0%} resolved"),
        _part(line, "reward/mean", "reward {:.2f}"),
        _part(line, "rate/lost", "{:.0%} lost to infrastructure") if line.get("rate/lost") else "",
        untrained,
        _part(line, "train/entropy", "entropy {:.2f}"),
        *(f"{clock(line[key])} of {part}" for key, part in TIMES.items() if key in line),
    ]
    return f"step {line['step']:.0f} of {steps}: {', '.join(part for part in parts if part)}"


def validation_line(steps: int, figures: Mapping[str, float]) -> str:
    """Returns a line that describes a validation, with the 95 % Wilson interval of the resolve rate."""
    tasks, resolved = int(figures["validation/tasks"]), int(figures["validation/resolved"])
    text = f"validation after {steps} steps: {resolved} of {tasks} tasks resolved"
    if tasks:
        low, high = wilson(resolved, tasks)
        text += f" ({resolved / tasks:.0%}, between {low:.0%} and {high:.0%})"
    lost = int(figures["validation/lost"])
    return text + (f", {lost} more lost to infrastructure" if lost else "")


def _part(line: Mapping[str, float], name: str, words: str) -> str:
    return words.format(line[name]) if name in line else ""
