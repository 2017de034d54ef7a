"""The order in which tasks are given to the policy: the same for the same seed, whatever was interrupted."""

import random
from collections.abc import Sequence
from functools import lru_cache

from swelab.records.task_records import Task


class Prompts:
    """Tasks without end: each once an epoch, in an order of its own in each epoch."""

    def __init__(self, tasks: Sequence[Task], seed: int, shuffled: bool = True):
        """Raises ValueError without tasks."""
        if not tasks:
            raise ValueError("no tasks")
        self._tasks, self._seed, self._shuffled = tasks, seed, shuffled
        self._order = lru_cache(4)(self._make_order)

    def task(self, number: int) -> Task:
        """The prompt with that number, counted from 0 over all epochs."""
        epoch, place = divmod(number, len(self._tasks))
        return self._tasks[self._order(epoch)[place]]

    def _make_order(self, epoch: int) -> list[int]:
        order = list(range(len(self._tasks)))
        if self._shuffled:
            random.Random(f"{self._seed} {epoch}").shuffle(order)
        return order
