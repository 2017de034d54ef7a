"""The lock of a part of a subset equals the whole subset's lock for its tasks."""

import pytest

from swelab.records import InputError, check, digest
from swelab.records.task_records import KeptTask, Lock
from swelab.tasks.validation_lock import lock_of_part
from tests.conftest import make_task

TASKS = [make_task() | {"instance_id": f"own__calc-{number}"} for number in range(3)]
DROPPED = {"instance_id": "own__calc-9", "reason": "the gold patch does not apply", "gold_resolved": 0}


def whole():
    kept = [
        KeptTask(instance_id=task.instance_id, task=digest(task), place="p", seconds=1.5) for task in TASKS
    ]
    return Lock.of(
        {
            "tasks_digest": digest(TASKS),
            "total": 4,
            "settings": {"gold_runs": 2},
            "kept": kept,
            "flaky": [],
            "broken": [DROPPED],
        }
    )


def test_a_part_keeps_its_rows_in_its_order():
    part = lock_of_part(TASKS[:0:-1], whole(), "it")
    check(part, Lock, "it")
    assert part.kept == whole().kept[:0:-1] and part.settings == {"gold_runs": 2}
    assert part.total == 2 and part.broken == [] and part.tasks_digest == digest(TASKS[:0:-1])


@pytest.mark.parametrize("change", [{"instance_id": "own__calc-9"}, {"patch": "another"}])
def test_a_task_that_was_not_kept_as_it_is_is_refused(change):
    with pytest.raises(InputError, match=r"some.lock.json: does not keep own__calc-\d as it is; expected"):
        lock_of_part([TASKS[0] | change], whole(), "some.lock.json")
