"""The order in which the policy gets tasks. The order depends only on the seed, and not on interruptions."""

import random
from collections.abc import Iterator, Sequence
from functools import lru_cache

from swelab.configs.kinds.rl import Rl
from swelab.records import InputError
from swelab.records.task_records import Task
from swelab.tasks.disjoint import EvaluationTasks, check_disjoint
from swelab.tasks.published_rows import is_private


def check_tasks(recipe: Rl, tasks: Sequence[Task], held_out: Sequence[Task]) -> None:
    """Raises the first InputError of `task_faults`, if there is one."""
    for fault in task_faults(recipe, tasks, held_out):
        raise fault


def task_faults(recipe: Rl, tasks: Sequence[Task], held_out: Sequence[Task]) -> Iterator[InputError]:
    """Yields each reason why a recipe cannot be trained on `tasks` or validated on `held_out`.

    A step needs `prompts` tasks and up to `refill` further tasks. A validation needs `limit` tasks. The two
    sets must not share a task, function or bug. All tests must be public. No task may belong to a published
    evaluation set.
    """
    if private := [task.instance_id for task in (*tasks, *held_out) if is_private(task)]:
        yield InputError(f"the tests of {private[0]} are private", expected="tasks that can be judged here")
    evaluated = False
    for use, given in (("train on", tasks), ("validate on while training", held_out)):
        known = EvaluationTasks()
        for task in given:
            known.note(task)
        try:
            known.refuse(use)
        except InputError as fault:
            evaluated = True
            yield fault
    asked, refill = recipe.rollouts.prompts, recipe.method.refill
    if asked + refill > len(tasks):
        more = f" and method.refill {refill}" * bool(refill)
        what = f"rollouts.prompts {asked}{more}, but {len(tasks)} tasks in subset {recipe.subset}"
        yield InputError(what, expected="at most as many as there are tasks")
    if not recipe.validation:
        return
    limit, subset = recipe.validation.limit, recipe.validation.subset
    if limit > len(held_out):
        what = f"validation.limit {limit}, but {len(held_out)} tasks in subset {subset}"
        yield InputError(what, expected="at most as many as there are; 0 is all")
    if not evaluated:
        try:
            check_disjoint(tasks, held_out, same_commit="report")
        except InputError as fault:
            yield fault


class Prompts:
    """An endless sequence of tasks. Each epoch contains every task once. If `shuffled` is true, each epoch is
    shuffled anew."""

    def __init__(self, tasks: Sequence[Task], seed: int, shuffled: bool = True):
        """Raises ValueError if there are no tasks."""
        if not tasks:
            raise ValueError("no tasks")
        self._tasks, self._seed, self._shuffled = tasks, seed, shuffled
        self._order = lru_cache(4)(self._make_order)

    def task(self, number: int) -> Task:
        """Returns the task of prompt `number`, counted from 0 over all epochs."""
        epoch, place = divmod(number, len(self._tasks))
        return self._tasks[self._order(epoch)[place]]

    def _make_order(self, epoch: int) -> list[int]:
        order = list(range(len(self._tasks)))
        if self._shuffled:
            random.Random(f"{self._seed} {epoch}").shuffle(order)
        return order
