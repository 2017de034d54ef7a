"""Makes the witnesses of a subset's kept tasks in parallel, and resumes after an interruption."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext

from swelab.grading import versions
from swelab.grading.evidence import WitnessRun
from swelab.grading.grading_stage import Bench
from swelab.grading.validation.validation_batches import rounds
from swelab.grading.validation.witness_making import make_witnesses, unpack
from swelab.grading.witness_store import WitnessWriter
from swelab.jobs.journal import Journal
from swelab.jobs.resumable_run import run_shard
from swelab.records import Fault, digest
from swelab.records.attempt_records import UNASKED, GradeWitness
from swelab.records.task_records import KeptTask, Task

UNASKABLE = GradeWitness(standing=UNASKED, reason="a script judges it: there is no test to ask")
SHARED = 12
"""Maximum number of tasks that share runs. All these tasks are lost if a run is lost."""


def add_witnesses(
    valid_tasks: Sequence[KeptTask],
    tasks: Iterable[Task],
    bench: Bench,
    journal: Journal,
    workers: int,
    writer: WitnessWriter,
    together: bool = False,
) -> Iterator[KeptTask]:
    """Writes the witnesses of kept tasks.

    Yields the lock's rows of these tasks, each with the strength of the witness.

    tasks: the tasks of the rows, and possibly further tasks. together: the recipe's `validate.together`.
    Raises Fault if runs were lost to infrastructure repeatedly.
    """
    if bench.witnesses.guard == "reference":
        yield from valid_tasks
        return
    names = {row.instance_id for row in valid_tasks}
    mine = [task for task in tasks if task.instance_id in names]
    asked = [task for task in mine if not task.answers]
    groups = list(_groups(asked, bench, together))
    runs = run_shard(
        [(_key(group, bench, together), group) for group in groups],
        lambda: nullcontext(lambda group: make_witnesses(group, bench, together)),
        journal,
        workers=workers,
        label="witness",
        kind=WitnessRun,
        is_lost=lambda run: bool(run.lost),
        is_good=lambda run: not run.lost,
    )
    scripts = {task.instance_id: UNASKABLE for task in mine if task.by_script}
    made_witnesses, lost = WitnessRun(standings=scripts, packed={}), []
    for run in runs:
        lost += [run.lost] if run.lost else []
        made_witnesses.standings.update(run.standings)
        made_witnesses.packed.update(run.packed)
    if lost:
        raise Fault(f"{len(lost)} runs of questions were lost to infrastructure, such as: {lost[0]}")
    for row in valid_tasks:
        name = row.instance_id
        if name in made_witnesses.packed:
            writer.add(name, unpack(made_witnesses.packed[name]))
        yield row | ({"witness": made_witnesses.standings[name]} if name in made_witnesses.standings else {})


def _groups(tasks: list[Task], bench: Bench, together: bool) -> Iterator[Sequence[Task]]:
    """Yields groups of at most SHARED tasks that have the same clean tree and test runner.

    A task with an image is in a group by itself. With `together`, no two tasks of a group share a file of a
    bug or a test.
    """
    for group in _together(tasks, bench) if together else _alike(tasks, bench):
        yield from (group[at : at + SHARED] for at in range(0, len(group), SHARED))


def _together(tasks: list[Task], bench: Bench) -> Iterator[Sequence[Task]]:
    return (batch.tasks for batch in rounds(tasks, bench, together=True))


def _alike(tasks: Iterable[Task], bench: Bench) -> Iterator[Sequence[Task]]:
    places: dict[str, list[Task]] = {}
    for task in tasks:
        command = (task.test_cmd or "").split()[:3]
        alone = task.instance_id if task.instance_id in bench.images else ""
        places.setdefault(digest([bench.place(task), command, alone]), []).append(task)
    yield from places.values()


def _key(group: Sequence[Task], bench: Bench, together: bool) -> str:
    made = [versions.RUN, versions.GRADER, versions.GATE]
    return digest(["witness", made, together, list(group), [bench.place(task) for task in group]])
