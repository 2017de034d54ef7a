"""The training loop: makes groups of rollouts, computes advantages, trains a batch and publishes new weights.

A step is finished when its checkpoint exists under its final name. If the run was killed during a step, that
step is repeated from its journal, and no turn is sampled again.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from swelab.configs.kinds.rl import Rl
from swelab.models.serving.engine import Weights
from swelab.records import read_json, write_json, write_jsonl
from swelab.rl import metrics
from swelab.rl.ahead import Ahead
from swelab.rl.idle_shares import Busy, StepClock
from swelab.rl.learner import NotFinite, Trainee, TrainingSample
from swelab.rl.method import Group, advantages_of, group_figures, group_of
from swelab.rl.prompts import Prompts
from swelab.rl.rollouts import Maker, RolledOut, RolloutRequest, StepJournal
from swelab.rl.samples import samples
from swelab.rl.step_reports import Reports
from swelab.rl.token_weights import token_weights
from swelab.rl.validating import Validation, Validations


class Training:
    """A training run in its own folder.

    learner: opens the learner on a checkpoint. publish: makes all servers load new weights. place: makes the
    rollouts. keep: is called with the step's number and the group, for each group. engine: measures the time
    in which the policy generates, or None if other processes call the policy.
    """

    def __init__(
        self,
        folder: Path,
        start: Path,
        prompts: Prompts,
        recipe: Rl,
        place: Maker,
        learner: Callable[[Path], Trainee],
        publish: Callable[[Weights], int],
        reports: Reports | None = None,
        validation: Validation | None = None,
        keep: Callable[[int, Group], None] = lambda *_: None,
        engine: Busy | None = None,
    ):
        self.folder, self.start, self.prompts, self.recipe = folder, start, prompts, recipe
        self.place, self.publish, self._keep = place, publish, keep
        self.rollouts, self.steps = recipe.rollouts, recipe.train.steps
        self._open_learner, self._reports = learner, reports or Reports()
        self._places, self._engine = Busy(), engine
        self._validated = len(validation.tasks) if validation else 0
        seen = self._reports.rolled_out
        self._validations = Validations(folder, validation, self.steps, self.rollouts.at_once, seen)

    def run(self) -> Path:
        """Runs all remaining steps, and returns the last checkpoint. Raises NotFinite, InputError,
        ServingError."""
        done = finished_steps(self.folder)
        checkpoint = self.checkpoint(done) if done else self.start
        learner = self._open_learner(checkpoint)
        if done:
            learner.resume(checkpoint)
        first = read_json(self._facts(done))["next_prompt"] if done else 0
        self._begin(done)
        with (
            closing(self._reports),
            Ahead(
                self.folder,
                self.prompts,
                self.rollouts.samples,
                self._roll_out,
                self.rollouts.at_once,
                first,
                self.rollouts.prompts,
            ) as ahead,
        ):
            for number in range(done, self.steps):
                seconds = self._publish(checkpoint, number)
                self._validate(number)
                first = self._step(number, learner, ahead, first, seconds)
                checkpoint = self.checkpoint(number + 1)
            if self._validations.due(self.steps):
                self._publish(checkpoint, self.steps)
                self._validate(self.steps)
        self._write_metrics(self.steps)
        write_jsonl(self.folder / "validation.jsonl", self._validations.rows())
        metrics.check_trained(self.folder / "metrics.jsonl")
        return checkpoint

    def _begin(self, done: int) -> None:
        moments, each = self._validations.moments(), self.rollouts.prompts * self.rollouts.samples
        seen = sum(bool(self._validations.figures(moment)) for moment in moments)
        rollouts = self.steps * each + len(moments) * self._validated
        self._reports.begin(self.steps, done, rollouts, done * each + seen * self._validated)

    def _publish(self, checkpoint: Path, number: int) -> float:
        """Makes the servers load the weights after `number` steps. Returns the seconds that this took."""
        began = time.monotonic()
        self.publish(Weights(checkpoint, str(number)))
        return time.monotonic() - began

    def _roll_out(self, request: RolloutRequest, journal: StepJournal) -> RolledOut:
        with self._places.one():
            done = self.place.roll_out(request, journal)
        self._reports.rolled_out(done)
        return done

    def _validate(self, steps: int) -> None:
        if self._validations.due(steps):
            self._reports.on_validation(steps, self._validations.run(steps))
            self._write_metrics(steps)

    def checkpoint(self, steps: int) -> Path:
        """Returns the path of the checkpoint after `steps` steps."""
        return self.folder / f"checkpoint-{steps:05d}"

    def _step(self, number: int, learner: Trainee, ahead: Ahead, first: int, published: float) -> int:
        """Runs one training step on the groups of the next prompts, beginning with `first`. Returns the first
        prompt of the next step. published: seconds that the servers took to load the weights for this
        step."""
        clock = StepClock(self._places, self._engine, self.rollouts.at_once)
        groups, last = self._groups(first, ahead, min(self.rollouts.ahead, self.steps - number - 1))
        ahead.done_before(last)
        rolled = clock.seconds()
        for group in groups:
            self._keep(number + 1, group)
        try:
            figures = learner.train(batch_of(groups, self.recipe))
        except NotFinite as error:
            kept = self.checkpoint(number) if number else self.start
            raise NotFinite(f"step {number + 1}: {error}; the last good checkpoint is {kept}") from None
        trained = clock.seconds() - rolled
        rollouts = [each for group in groups for each in group.rollouts]
        line = {
            "step": number + 1,
            **group_figures(groups, str(number)),
            **metrics.of_judge(rollouts, self.place.judge.take_usage() if self.place.judge else {}),
            **{f"train/{name}": value for name, value in figures.items()},
            "time/rollouts": round(rolled, 3),
            "time/train": round(trained, 3),
            "time/publish": round(published, 3),
            **clock.idle(trained, published),
            "memory/learner_mib": round(learner.peak_mib(), 1),
        }
        write_json(self._facts(number + 1), {"next_prompt": last, "metrics": line})
        learner.save(self.checkpoint(number + 1))
        self._write_metrics(number + 1)
        self._prune(number + 1)
        self._reports.step(line)
        return last

    def _groups(self, first: int, ahead: Ahead, later: int) -> tuple[list[Group], int]:
        """Returns the groups of a step, and the first prompt of the next step. While this method waits,
        rollouts of the next `later` steps may already run with the current weights."""
        all_groups: list[Group] = []
        number, missing = first, self.rollouts.prompts
        most = first + self.rollouts.prompts + self.recipe.method.refill
        while missing and number < most:
            numbers = range(number, min(number + missing, most))
            ahead.allow(numbers.stop + later * self.rollouts.prompts)
            made = [group_of(ahead.take(each), self.recipe) for each in numbers]
            all_groups += made
            number = numbers.stop
            missing = sum(bool(group.treated.dropped) for group in made)
        return all_groups, number

    def _facts(self, steps: int) -> Path:
        return self.folder / f"step-{steps:05d}.json"

    def _write_metrics(self, steps: int) -> None:
        """Writes one line for each step. Line 0 exists if the starting weights were validated."""
        lines = (
            {"step": number}
            | (read_json(self._facts(number))["metrics"] if number else {})
            | self._validations.figures(number)
            for number in range(steps + 1)
        )
        write_jsonl(self.folder / "metrics.jsonl", (line for line in lines if len(line) > 1))

    def _prune(self, steps: int) -> None:
        """Removes all but the newest `train.keep_checkpoints` checkpoints. Keeps at least two, because
        servers may still load the older one."""
        for old in range(1, steps - max(2, self.recipe.train.keep_checkpoints) + 1):
            shutil.rmtree(self.checkpoint(old), ignore_errors=True)


def finished_steps(folder: Path) -> int:
    """Returns the number of steps that the run in `folder` has finished."""
    names = [path.name for path in folder.glob("checkpoint-[0-9][0-9][0-9][0-9][0-9]")]
    return max((int(name.removeprefix("checkpoint-")) for name in names), default=0)


def batch_of(groups: Sequence[Group], recipe: Rl) -> list[TrainingSample]:
    """Returns the batch of a step: each sampled token of each trained rollout once, with its advantage and
    weight."""
    method = recipe.method
    rows = [
        (sample, advantages, rollout.request.name, index)
        for group in groups
        for rollout, advantages, trained in zip(
            group.rollouts, advantages_of(group, recipe), group.treated.trained, strict=True
        )
        if trained
        for index, sample in enumerate(samples(rollout.turns, method.per_step))
    ]
    sequences = [name if method.weigh == "rollout" else (name, index) for _, _, name, index in rows]
    weights = token_weights(
        [sample.trained for sample, *_ in rows], sequences, method.aggregation, method.horizon
    )
    return [
        TrainingSample(
            sample,
            [advantages[step] if step >= 0 else 0.0 for step in sample.steps],
            [weight * trained for trained in sample.mask],
            name,
        )
        for (sample, advantages, name, _), weight in zip(rows, weights, strict=True)
    ]
