"""The training loop: groups of rollouts, their advantages, a batch for the learner, new weights for servers.

A step is finished when its checkpoint has its name; all before that is made again from the journal of the
step, without asking the engine for what it sampled already.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from swelab.jobs.journal import Journal
from swelab.models.serving.engine import Weights
from swelab.records import Record, read_json, write_json, write_jsonl
from swelab.records.task_records import Task
from swelab.rl import metrics
from swelab.rl.advantages import OF_ROLLOUTS, STEP_WISE, step_wise
from swelab.rl.ahead import Ahead
from swelab.rl.artifacts import validation_row
from swelab.rl.failures import Attempt, Switches, Tally, Treated, treat
from swelab.rl.learner import Learner, Trained
from swelab.rl.prompts import Prompts
from swelab.rl.rewards import REWARDS
from swelab.rl.rollouts import Asked, Kept, Place, RolledOut
from swelab.rl.samples import samples
from swelab.rl.token_weights import token_weights


@dataclass(frozen=True)
class Method:
    """How rollouts become a batch. See the recipe's keys of the same names."""

    steps: int
    prompts: int
    samples: int
    reward: str = "solved"
    advantage: str = "grpo-unscaled"
    aggregation: str = "token-mean"
    horizon: int = 0
    per_step: bool = False
    weigh: str = "rollout"
    switches: Switches = Switches()
    keep_constant: bool = False
    refill: int = 0
    ahead: int = 0
    coefficient: float = 0.0
    keep_checkpoints: int = 2


@dataclass(frozen=True)
class Validation:
    """Tasks that nothing is trained on, attempted once each by the start, every `every` steps and at the end.

    name: of its folder; other tasks or another sampling have another name.
    """

    name: str
    tasks: Sequence[Task]
    every: int
    place: Place


@dataclass(frozen=True)
class Group:
    """The rollouts of one prompt, and what the switches made of them."""

    rollouts: list[RolledOut]
    attempts: list[Attempt]
    treated: Treated


class Training:
    """A training run in a folder of its own.

    learner: opens the learner on a checkpoint. publish: has all servers serve other weights. place: where
    rollouts are made. workers: rollouts at once.
    """

    def __init__(
        self,
        folder: Path,
        start: Path,
        prompts: Prompts,
        method: Method,
        place: Place,
        learner: Callable[[Path], Learner],
        publish: Callable[[Weights], int],
        workers: int,
        told: Callable[[Record], None] = lambda line: None,
        validation: Validation | None = None,
        keep: Callable[[int, list[RolledOut], list[Attempt]], None] = lambda *_: None,
    ):
        self.folder, self.start, self.prompts, self.method = folder, start, prompts, method
        self.place, self.publish, self.workers, self._told = place, publish, workers, told
        self._open_learner, self._validation, self._keep = learner, validation, keep

    def run(self) -> Path:
        """All steps that are left; the last checkpoint. Raises NotFinite, InputError, ServingError."""
        done = self._finished()
        found = self.checkpoint(done) if done else self.start
        learner = self._open_learner(found)
        if done:
            learner.resume(found)
        first = read_json(self._facts(done))["next_prompt"] if done else 0
        with Ahead(
            self.folder, self.prompts, self.method.samples, self.place.roll_out, self.workers, first,
            self.method.prompts,
        ) as ahead:  # fmt: skip
            for number in range(done, self.method.steps):
                self.publish(Weights(found, str(number)))
                self._validate(number)
                first = self._step(number, learner, ahead, first)
                found = self.checkpoint(number + 1)
        if self._validation and not self._validated(self.method.steps).exists():
            self.publish(Weights(found, str(self.method.steps)))
        self._validate(self.method.steps)
        self._write_metrics(self.method.steps)
        write_jsonl(self.folder / "validation.jsonl", self._validation_rows())
        return found

    def checkpoint(self, steps: int) -> Path:
        """The checkpoint after so many steps."""
        return self.folder / f"checkpoint-{steps:05d}"

    def _finished(self) -> int:
        names = [path.name for path in self.folder.glob("checkpoint-[0-9][0-9][0-9][0-9][0-9]")]
        return max((int(name.removeprefix("checkpoint-")) for name in names), default=0)

    def _step(self, number: int, learner: Learner, ahead: Ahead, first: int) -> int:
        """Trains on the groups from the prompt `first` on; the prompt that the next step begins with."""
        began = time.monotonic()
        groups, last = self._groups(first, ahead, min(self.method.ahead, self.method.steps - number - 1))
        ahead.done_before(last)
        rolled = time.monotonic()
        for group in groups:
            self._keep(number + 1, group.rollouts, group.attempts)
        found = learner.train(batch_of(groups, self.method))
        line = {
            "step": number + 1,
            **self._measures(groups, str(number)),
            **{f"train/{name}": value for name, value in found.items()},
            "time/rollouts": round(rolled - began, 3),
            "time/train": round(time.monotonic() - rolled, 3),
        }
        write_json(self._facts(number + 1), {"next_prompt": last, "metrics": line})
        learner.save(self.checkpoint(number + 1))
        self._write_metrics(number + 1)
        self._prune(number + 1)
        self._told(line)
        return last

    def _validate(self, steps: int) -> None:
        """Attempts the validation's tasks with the weights after so many steps, where it is time to."""
        asked, facts = self._validation, self._validated(steps)
        if not asked or facts.exists() or (steps % asked.every and steps < self.method.steps):
            return
        began = time.monotonic()
        with Journal(facts.with_suffix(".jsonl")) as journal, ThreadPoolExecutor(self.workers) as pool:
            kept = Kept(journal)
            waiting = [
                pool.submit(asked.place.roll_out, Asked(number, 0, task), kept)
                for number, task in enumerate(asked.tasks)
            ]
            try:
                done = [each.result() for each in waiting]
            finally:
                for each in waiting:
                    each.cancel()
        seconds = {"time/validation": round(time.monotonic() - began, 3)}
        write_json(facts, metrics.of_validation(done) | seconds)
        self._write_metrics(steps)
        self._told({"step": steps, **read_json(facts)})

    def _groups(self, first: int, ahead: Ahead, later: int) -> tuple[list[Group], int]:
        """The groups of a step, and the prompt that the next step begins with.

        Meanwhile those of `later` further steps may run, with the weights of this one.
        """
        found: list[Group] = []
        number, wanted = first, self.method.prompts
        most = first + self.method.prompts + self.method.refill
        while wanted and number < most:
            numbers = range(number, min(number + wanted, most))
            ahead.allow(numbers.stop + later * self.method.prompts)
            made = [self._group(ahead.take(each)) for each in numbers]
            found += made
            number = numbers.stop
            wanted = sum(bool(group.treated.dropped) for group in made)
        return found, number

    def _group(self, rollouts: list[RolledOut]) -> Group:
        reward = REWARDS[self.method.reward]
        attempts = [each.attempted(reward, self.method.coefficient) for each in rollouts]
        return Group(rollouts, attempts, treat(attempts, self.method.switches, self.method.keep_constant))

    def _measures(self, groups: Sequence[Group], version: str) -> dict[str, float]:
        tally = Tally()
        for group in groups:
            tally.add(group.attempts, group.treated)
        rollouts = [each for group in groups for each in group.rollouts]
        attempts = [each for group in groups for each in group.attempts]
        return {
            **metrics.of_rewards(attempts, tally),
            **metrics.of_turns(rollouts, version),
            **metrics.of_agents(map(metrics.of_rollout, rollouts)),
            **metrics.of_judge(rollouts, self.place.judge.spent() if self.place.judge else {}),
        }

    def _facts(self, steps: int) -> Path:
        return self.folder / f"step-{steps:05d}.json"

    def _validation_rows(self) -> Iterator[Record]:
        """All attempts of the validations; the conversations are those of the first and of the last one."""
        done = [steps for steps in range(self.method.steps + 1) if self._validated(steps).exists()]
        for steps in done:
            with Journal(self._validated(steps).with_suffix(".jsonl")) as journal:
                for number, task in enumerate(self._validation.tasks if self._validation else ()):
                    if found := Kept(journal).result(Asked(number, 0, task)):
                        yield validation_row(steps, found, steps in (done[0], done[-1]))

    def _validated(self, steps: int) -> Path:
        name = self._validation.name if self._validation else "none"
        return self.folder / f"validation-{name}" / f"{steps:05d}.json"

    def _write_metrics(self, steps: int) -> None:
        """A line for each step; line 0 is there where the start was validated."""
        lines = (
            {"step": number}
            | (read_json(self._facts(number))["metrics"] if number else {})
            | (read_json(found) if (found := self._validated(number)).exists() else {})
            for number in range(steps + 1)
        )
        write_jsonl(self.folder / "metrics.jsonl", (line for line in lines if len(line) > 1))

    def _prune(self, steps: int) -> None:
        """Removes checkpoints that are not among the newest; servers hold the newest but one."""
        for old in range(1, steps - max(2, self.method.keep_checkpoints) + 1):
            shutil.rmtree(self.checkpoint(old), ignore_errors=True)


def batch_of(groups: Sequence[Group], method: Method) -> list[Trained]:
    """The batch of a step: each sampled token of each trained rollout once, with its advantage and weight."""
    made = [
        (sample, advantages, rollout.asked.name, index)
        for group in groups
        for rollout, advantages, trained in zip(
            group.rollouts, advantages_of(group, method), group.treated.trained, strict=True
        )
        if trained
        for index, sample in enumerate(samples(rollout.turns, method.per_step))
    ]
    sequences = [name if method.weigh == "rollout" else (name, index) for _, _, name, index in made]
    weights = token_weights(
        [sample.trained for sample, *_ in made], sequences, method.aggregation, method.horizon
    )
    return [
        Trained(
            sample,
            [advantages[step] if step >= 0 else 0.0 for step in sample.steps],
            [weight * trained for trained in sample.mask],
            name,
        )
        for (sample, advantages, name, _), weight in zip(made, weights, strict=True)
    ]


def advantages_of(group: Group, method: Method) -> list[list[float]]:
    """The advantage of each turn of each rollout of a group."""
    if method.advantage == STEP_WISE:
        reward, scores = REWARDS[method.reward], [rollout.scores for rollout in group.rollouts]
        outcomes = [
            None if known is None else reward(rollout.grade)
            for rollout, known in zip(group.rollouts, group.treated.rewards, strict=True)
        ]
        return step_wise(outcomes, scores, method.coefficient)
    lengths = [attempt.trained_tokens for attempt in group.attempts]
    found = OF_ROLLOUTS[method.advantage](group.treated.rewards, lengths)
    return [[each] * len(rollout.turns) for each, rollout in zip(found, group.rollouts, strict=True)]


def tell(line: Record) -> None:
    """One line of a step on standard error."""
    names = (
        "step", "validation/resolve_rate", "reward/mean", "rate/resolved", "train/entropy", "time/rollouts",
        "time/train",
    )  # fmt: skip
    shown = {name: line[name] for name in names if name in line}
    print(json.dumps(shown), file=sys.stderr, flush=True)
