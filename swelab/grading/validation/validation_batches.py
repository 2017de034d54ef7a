"""Groups tasks that can share a run at validation."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from swelab.records import digest
from swelab.records.patch_reader import touched_paths
from swelab.records.task_records import Task

if TYPE_CHECKING:
    from swelab.grading.grading_stage import Bench


@dataclass(frozen=True)
class Batch:
    """Tasks that share a run. row: the row of the first task, with the tests and test files of all tasks."""

    tasks: tuple[Task, ...]
    row: Task

    @classmethod
    def of(cls, *tasks: Task) -> "Batch":
        """Makes a batch of tasks of one repository, whose test commands differ only in their last words."""
        first = tasks[0]
        if len(tasks) == 1:
            return cls(tasks, first)
        failing = list(dict.fromkeys(test for task in tasks for test in task.FAIL_TO_PASS))
        known = set(failing)
        passing = dict.fromkeys(test for task in tasks for test in task.PASS_TO_PASS if test not in known)
        files = list(dict.fromkeys(name for task in tasks for name in task.test_files))
        row = first | {
            "FAIL_TO_PASS": failing,
            "PASS_TO_PASS": list(passing),
            "test_files": files,
            "test_cmd": merge_commands([task.test_cmd for task in tasks]),
            "test_timeout": sum((task.test_timeout or 60) for task in tasks),
        }
        return cls(tasks, row)


def gold_batches(tasks: list[Task], bench: "Bench", together: bool) -> Iterator[Batch]:
    """Returns batches of tasks with equal gold tree and test command.

    With `together`, their test files may differ.
    """
    groups: dict[str, list[Task]] = {}
    for task in tasks:
        groups.setdefault(_group(task, bench, together), []).append(task)
    return (Batch.of(*group) for group in groups.values())


def rounds(tasks: list[Task], bench: "Bench", together: bool) -> Iterator[Batch]:
    """Yields a batch for each task.

    With `together`, yields batches of tasks that share no file of a bug or a test.
    """
    if not together:
        yield from (Batch.of(task) for task in tasks)
        return
    open_rounds: dict[str, list[tuple[set[str], list[Task]]]] = {}
    for task in tasks:
        files = {*touched_paths(task.patch), *task.test_files}
        mine = open_rounds.setdefault(_group(task, bench, True), [])
        for taken, members in mine:
            if not taken & files:
                taken |= files
                members.append(task)
                break
        else:
            mine.append((files, [task]))
    yield from (Batch.of(*members) for group in open_rounds.values() for _, members in group)


def _group(task: Task, bench: "Bench", together: bool) -> str:
    if task.instance_id in bench.images or not task.test_cmd:
        return task.instance_id
    command = shlex.split(task.test_cmd)
    if together:
        command = command[: _tail(command, task)]
    place = bench.place(task)
    files = [] if together else sorted(task.test_files)
    return digest([place, command, task.get("log_parser"), files])


def _tail(command: list[str], task: Task) -> int:
    """Returns the index at which the test files at the end of a command begin."""
    start = len(command)
    while start and command[start - 1] in task.test_files:
        start -= 1
    return start


def merge_commands(commands: list[str]) -> str:
    """Returns one command for several commands that are equal or differ only in their last words: the first
    command as it is written, and the words that only others have."""
    words = [shlex.split(command) for command in commands]
    same = 0
    while all(len(each) > same and each[same] == words[0][same] for each in words):
        same += 1
    others = dict.fromkeys(word for each in words[1:] for word in each[same:] if word not in words[0][same:])
    return f"{commands[0]} {shlex.join(others)}" if others else commands[0]
