"""Starts rollouts before their training step requests them, up to a limit.

Groups are trained in the order of their prompts. So the training step of a group is known before its rollouts
start. Rollouts whose weights would be too old at that step start later. No sampled rollout is discarded.
"""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from swelab.jobs.journal import Journal
from swelab.rl.prompts import Prompts
from swelab.rl.rollouts import RolledOut, RolloutRequest, StepJournal


class Ahead:
    """Runs groups of `samples` rollouts, starting at prompt `first`, with at most `workers` rollouts at once.

    folder: contains the journal files, one for every `per_file` prompts. roll_out: makes a rollout, or reads
    it from the journal.
    """

    def __init__(
        self,
        folder: Path,
        prompts: Prompts,
        samples: int,
        roll_out: Callable[[RolloutRequest, StepJournal], RolledOut],
        workers: int,
        first: int = 0,
        per_file: int = 1,
    ):
        self._folder, self._prompts, self._samples, self._roll_out = folder, prompts, samples, roll_out
        self._next, self._per_file = first, per_file
        self._waiting: dict[int, list[Future[RolledOut]]] = {}
        self._journals: dict[int, tuple[StepJournal, ExitStack]] = {}
        self._pool = ThreadPoolExecutor(workers)

    def __enter__(self) -> "Ahead":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        """Cancels rollouts that have not started, waits for the running rollouts, and closes the journals."""
        self._pool.shutdown(cancel_futures=True)
        self._close(self._next // self._per_file + 1)

    def allow(self, limit: int) -> None:
        """Starts the rollouts of all prompts below `limit`, in order."""
        for number in range(self._next, limit):
            kept, task = self._journal(number), self._prompts.task(number)
            self._waiting[number] = [
                self._pool.submit(self._roll_out, RolloutRequest(number, sample, task), kept)
                for sample in range(self._samples)
            ]
        self._next = max(self._next, limit)

    def take(self, number: int) -> list[RolledOut]:
        """Waits for the rollouts of prompt `number` and returns them. Raises the exception of a failed
        rollout."""
        return [each.result() for each in self._waiting.pop(number)]

    def done_before(self, number: int) -> None:
        """Closes the journal files that contain only prompts below `number`."""
        self._close(number // self._per_file)

    def _journal(self, number: int) -> StepJournal:
        place = number // self._per_file
        if place not in self._journals:
            opened = ExitStack()
            journal = opened.enter_context(Journal(self._folder / f"rollouts-{place:05d}.jsonl"))
            self._journals[place] = (StepJournal(journal), opened)
        return self._journals[place][0]

    def _close(self, before: int) -> None:
        for place in [place for place in self._journals if place < before]:
            self._journals.pop(place)[1].close()
