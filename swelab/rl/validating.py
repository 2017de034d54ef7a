"""Measures the policy's progress on held-out tasks during its training."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from swelab.jobs.journal import Journal
from swelab.records import Record, read_json, write_json
from swelab.records.task_records import Task
from swelab.rl import metrics
from swelab.rl.artifacts import validation_row
from swelab.rl.rollouts import Maker, RolledOut, RolloutRequest, StepJournal


@dataclass(frozen=True)
class Validation:
    """Held-out tasks, each attempted once at the start, every `every` steps and at the end. name: name of the
    validation's folder, which depends on the tasks and the sampling."""

    name: str
    tasks: Sequence[Task]
    every: int
    place: Maker


class Validations:
    """The validations of a run of `steps` steps, in the run's folder. If `validation` is None, the run has no
    validations. workers: maximum number of concurrent rollouts. on_rollout: is called with each finished
    rollout."""

    def __init__(
        self,
        folder: Path,
        validation: Validation | None,
        steps: int,
        workers: int,
        on_rollout: Callable[[RolledOut], None] = lambda done: None,
    ):
        self._folder, self._validation, self._steps = folder, validation, steps
        self._workers, self._on_rollout = workers, on_rollout

    def due(self, steps: int) -> bool:
        """Returns whether a validation is due after `steps` steps and does not exist yet."""
        asked = self._validation
        return bool(asked) and steps in self.moments() and not self._facts(steps).exists()

    def moments(self) -> list[int]:
        """Returns the numbers of steps after which a validation is due."""
        every = self._validation.every if self._validation else self._steps + 1
        return sorted({*range(0, self._steps, every), self._steps}) if self._validation else []

    def run(self, steps: int) -> Record:
        """Attempts the tasks, and returns the figures. The servers must already have loaded the weights after
        `steps` steps."""
        assert self._validation
        began, facts = time.monotonic(), self._facts(steps)
        with Journal(facts.with_suffix(".jsonl")) as journal, ThreadPoolExecutor(self._workers) as pool:
            kept, name = StepJournal(journal), f"{facts.parent.name}-{facts.stem}-"
            waiting = [
                pool.submit(self._attempt, RolloutRequest(number, 0, task, name), kept)
                for number, task in enumerate(self._validation.tasks)
            ]
            try:
                done = [each.result() for each in waiting]
            finally:
                for each in waiting:
                    each.cancel()
        seconds = {"time/validation": round(time.monotonic() - began, 3)}
        write_json(facts, metrics.of_validation(done) | seconds)
        return self.figures(steps)

    def figures(self, steps: int) -> Record:
        """Returns the figures of the validation after `steps` steps, or {} if there was none."""
        facts = self._facts(steps)
        return read_json(facts) if facts.exists() else {}

    def rows(self) -> Iterator[Record]:
        """Yields a line of validation.jsonl for each attempt. Only the first and the last validation include
        conversations."""
        done = [steps for steps in range(self._steps + 1) if self._facts(steps).exists()]
        for steps in done:
            with Journal(self._facts(steps).with_suffix(".jsonl")) as journal:
                for number, task in enumerate(self._validation.tasks if self._validation else ()):
                    if found := StepJournal(journal).result(RolloutRequest(number, 0, task)):
                        yield validation_row(steps, found, steps in (done[0], done[-1]))

    def _attempt(self, request: RolloutRequest, journal: StepJournal) -> RolledOut:
        assert self._validation
        done = self._validation.place.roll_out(request, journal)
        self._on_rollout(done)
        return done

    def _facts(self, steps: int) -> Path:
        name = self._validation.name if self._validation else "none"
        return self._folder / f"validation-{name}" / f"{steps:05d}.json"
