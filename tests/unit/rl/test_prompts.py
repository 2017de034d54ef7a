"""The order of the tasks."""

import pytest

from swelab.configs import recipes
from swelab.configs.kinds import RL
from swelab.records import InputError
from swelab.rl.prompts import Prompts, check_tasks
from tests.conftest import make_task

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


def recipe(**changes):
    settings = {"start": "model:tiny", "subset": "train", "scaffold": "demo", "train": {"steps": 1}}
    return recipes.complete(RL, settings | changes, "it")


def task(number, **changes):
    return make_task() | {"instance_id": f"own__calc-{number}", "bug": f"{number:016x}", **changes}


LIMITED = {"validation": {"subset": "held", "limit": 2}}


@pytest.mark.parametrize(
    ("changes", "count", "held_out", "words"),
    [
        ({}, 7, [], "rollouts.prompts 8, but 7 tasks in subset train; expected at most as many"),
        (
            {"method": {"refill": 4}},
            11,
            [],
            "rollouts.prompts 8 and method.refill 4, but 11 tasks in subset train; expected at most as many",
        ),
        (LIMITED, 8, [9], "validation.limit 2, but 1 tasks in subset held; expected at most as many"),
        (LIMITED, 8, [9, 3], "train and heldout overlap: 1 by instance_id (own__calc-3), 1 by function"),
    ],
)
def test_tasks_that_a_recipe_cannot_use_are_one_line(changes, count, held_out, words):
    known = {"function": "calc/core.py::last"}
    others = [task(number, **(known if number > 8 else {})) for number in held_out]
    with pytest.raises(InputError) as caught:
        check_tasks(recipe(**changes), [task(number) for number in range(count)], others)
    assert words in str(caught.value)


def test_tasks_whose_tests_are_private_cannot_be_rewarded():
    tasks = [task(number) for number in range(8)]
    with pytest.raises(InputError, match="^the tests of own__calc-9 are private; expected tasks that can be"):
        check_tasks(recipe(validation={"subset": "held"}), tasks, [task(9, answers="private")])


def test_evaluation_sets_are_neither_trained_nor_validated_on():
    known = {"evaluation_set": "syn-debug"}
    with pytest.raises(InputError, match="set to train on: 1 of 2 tasks are of syn-debug, such as own"):
        check_tasks(recipe(rollouts={"prompts": 2}), [task(0), task(1, **known)], [])
    held_out = [task(number, **known) for number in (2, 3)]
    with pytest.raises(InputError, match="set to validate on while training: 2 of 2 tasks are of syn-debug"):
        check_tasks(recipe(rollouts={"prompts": 2}, **LIMITED), [task(0), task(1)], held_out)


def test_the_same_function_or_bug_is_not_validated_and_trained():
    tasks = [task(number) for number in range(8)]
    for shared in ({}, {"function": "calc/core.py::last", "bug": tasks[0].bug}):
        with pytest.raises(InputError, match="1 by (function|bug)"):
            check_tasks(recipe(validation={"subset": "held"}), tasks, [task(9, **shared)])
