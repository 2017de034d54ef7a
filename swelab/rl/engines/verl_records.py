"""Records a training run on verl in the same files as a run of the embedded engine.

Everything is computed from files in the run's folder: journals, and verl's own figures. No other state is
kept, so a kill loses nothing.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from swelab.jobs.journal import read_journal
from swelab.records import Record
from swelab.rl import metrics
from swelab.rl.artifacts import Artifacts, validation_row
from swelab.rl.engines.verl_order import Order
from swelab.rl.method import Group, group_figures, group_of
from swelab.rl.rollouts import RolledOut, RolloutRequest, read_result

TRAINED, FIGURES = "trained", "figures"
"""Folders below verl's own folder. TRAINED: rows of each step as verl wrote them. FIGURES: verl's figures,
one file for each start of verl."""
ROLLOUTS = "rollouts"
NAMES = {
    "actor/pg_loss": "train/loss",
    "actor/grad_norm": "train/grad_norm",
    "actor/lr": "train/lr",
    "actor/entropy": "train/entropy",
    "actor/pg_clipfrac": "train/clipped",
    "actor/kl_loss": "train/kl",
    "timing_s/gen": "time/rollouts",
    "timing_s/update_weights": "time/publish",
    "timing_s/testing": "time/validation",
}
"""Maps verl's figures to our figures with the same meaning. Every figure of verl also appears with the prefix
`verl/`."""
TRAINING = ("timing_s/old_log_prob", "timing_s/ref", "timing_s/adv", "timing_s/update_actor")


@dataclass(frozen=True)
class RunRecords:
    """Reads the files of a training run. folder: verl's own folder, below the run's folder."""

    order: Order
    folder: Path

    def figures(self) -> dict[int, Record]:
        """Returns verl's figures, keyed by step. If a step was repeated, the later figures replace the
        earlier figures."""
        found: dict[int, Record] = {}
        for path in sorted((self.folder / FIGURES).glob("*.jsonl")):
            for line in _whole_lines(path):
                found[int(line["step"])] = found.get(int(line["step"]), {}) | line["data"]
        return found

    def step(self, number: int, figures: Mapping[str, float]) -> Record:
        """Returns the line of a step in metrics.jsonl. number: the step's number, counted from 1."""
        groups = self.groups(number)
        tokens = sum(
            attempt.trained_tokens
            for group in groups
            for attempt, trained in zip(group.attempts, group.treated.trained, strict=True)
            if trained
        )
        line = {"step": number, **group_figures(groups, str(number - 1)), "train/tokens": float(tokens)}
        numbers = {name: value for name, value in figures.items() if isinstance(value, (int, float))}
        line |= {ours: numbers[name] for name, ours in NAMES.items() if name in numbers}
        if spent := [numbers[name] for name in TRAINING if name in numbers]:
            line["time/train"] = round(sum(spent), 3)
        return line | {f"verl/{name}": value for name, value in sorted(numbers.items())}

    def groups(self, number: int) -> list[Group]:
        """Returns the groups that a step was trained on."""
        return [group_of(self._rollouts(each), self.order.recipe) for each in self.prompts(number)]

    def prompts(self, number: int) -> list[int]:
        """Returns the numbers of the prompts that a step was trained on, from verl's records. Without
        records, returns the numbers that the recipe gives for the step."""
        lines = _whole_lines(self.folder / TRAINED / f"{number}.jsonl")
        if told := sorted({int(line["gts"]) for line in lines if not line["uid"].startswith("pad")}):
            return told
        count = self.order.recipe.rollouts.prompts
        return list(range((number - 1) * count, number * count))

    def write_rollouts(self, number: int) -> list[RolledOut]:
        """Writes a folder for each rollout that the recipe selects from a step. Returns all rollouts of the
        step."""
        artifacts, groups = Artifacts(self.order.folder / ROLLOUTS, self.order.recipe), self.groups(number)
        for group in groups:
            artifacts.write(number, group)
        return [done for group in groups for done in group.rollouts]

    def validated_steps(self) -> list[int]:
        """Returns the numbers of steps after which a validation was completed."""
        parent = self.order.validation_folder(0).parent
        return [number for number in map(int, _names(parent)) if self._attempts(number)]

    def validation(self, steps: int) -> Record:
        """Returns the figures of the validation after `steps` steps."""
        return metrics.of_validation(self._attempts(steps))

    def validation_lines(self) -> Iterator[Record]:
        """Yields the lines of validation.jsonl. Only the first and the last validation include
        conversations."""
        moments = self.validated_steps()
        for steps in moments:
            for done in self._attempts(steps):
                yield validation_row(steps, done, steps in (moments[0], moments[-1]))

    def _rollouts(self, prompt: int) -> list[RolledOut]:
        task = self.order.prompts.task(prompt)
        asked = [RolloutRequest(prompt, sample, task) for sample in range(self.order.recipe.rollouts.samples)]
        return [done for each in asked if (done := read_back(each, self.order.journal(each)))]

    def _attempts(self, steps: int) -> list[RolledOut]:
        """Returns all attempts of a validation, or [] if some are unfinished."""
        asked = [RolloutRequest(number, 0, task) for number, task in enumerate(self.order.held_out)]
        paths = [self.order.validation_journal(each, steps) for each in asked]
        found = [done for each, path in zip(asked, paths, strict=True) if (done := read_back(each, path))]
        return found if len(found) == len(asked) else []


def read_back(request: RolloutRequest, path: Path) -> RolledOut | None:
    """Returns a finished rollout from a journal, or None if the rollout is unfinished. Another process may be
    writing to the journal."""
    lines = list(read_journal(path)) if path.exists() else []
    return next((read_result(request, line) for line in lines if line["key"] == request.name), None)


def _whole_lines(path: Path) -> list[Record]:
    """Returns the complete lines of a file whose last line may be unfinished."""
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text().split("\n")[:-1]]


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("[0-9]*") if path.is_dir())
