"""The order of the tasks."""

import pytest

from swelab.rl.prompts import Prompts

TASKS = [{"instance_id": str(number)} for number in range(7)]


def names(prompts, numbers):
    return [prompts.task(number)["instance_id"] for number in numbers]


def test_each_task_once_an_epoch_in_another_order():
    prompts = Prompts(TASKS, seed=3)
    epochs = [names(prompts, range(start, start + 7)) for start in (0, 7, 14)]
    assert all(sorted(epoch) == sorted(map(str, range(7))) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert names(Prompts(TASKS, seed=3), range(10, 20)) == names(prompts, range(10, 20))
    assert names(Prompts(TASKS, seed=4), range(7)) != epochs[0]


def test_the_order_of_the_subset_where_it_is_a_curriculum():
    assert names(Prompts(TASKS, seed=3, shuffled=False), range(9)) == [*map(str, range(7)), "0", "1"]


def test_no_tasks_are_refused():
    with pytest.raises(ValueError, match="no tasks"):
        Prompts([], 0)
