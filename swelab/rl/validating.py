"""Progress of a policy on tasks that it is not trained on, measured in the course of its training."""

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
    """Tasks that nothing is trained on, attempted once each by the start, every `every` steps and at the end.

    name: of its folder; other tasks or another sampling have another name.
    """

    name: str
    tasks: Sequence[Task]
    every: int
    place: Maker


class Validations:
    """The validations of a run of `steps` steps, kept in its folder; none where `asked` is None.

    workers: rollouts at once. seen: is called with each rollout that is over.
    """

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
        """Whether one belongs after so many steps and is not there yet."""
        asked = self._validation
        return bool(asked) and steps in self.moments() and not self._facts(steps).exists()

    def moments(self) -> list[int]:
        """After how many steps there is one."""
        every = self._validation.every if self._validation else self._steps + 1
        return sorted({*range(0, self._steps, every), self._steps}) if self._validation else []

    def run(self, steps: int) -> Record:
        """Attempts the tasks with the weights that are served, those after so many steps; the figures."""
        assert self._validation
        began, facts = time.monotonic(), self._facts(steps)
        with Journal(facts.with_suffix(".jsonl")) as journal, ThreadPoolExecutor(self._workers) as pool:
            kept = StepJournal(journal)
            waiting = [
                pool.submit(self._attempt, RolloutRequest(number, 0, task), kept)
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
        """Returns the figures of the validation after `steps` steps; {} if there was none."""
        facts = self._facts(steps)
        return read_json(facts) if facts.exists() else {}

    def rows(self) -> Iterator[Record]:
        """All attempts; the conversations are those of the first and of the last validation."""
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
