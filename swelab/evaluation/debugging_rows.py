"""Makes the tasks of an evaluation from debugging tasks that have no known repair: KodCode rows, or task
folders.

A null run (one run of the tests on the unrepaired code) shows which tests an attempt must repair. Null runs
are made for the chosen tasks only.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from swelab.configs.kinds.subset import KodcodeSubset
from swelab.evaluation.benchmark_rows import Benchmark, Source, checked_task
from swelab.evaluation.evaluation_plan import Plan
from swelab.jobs.journal import Journal
from swelab.records import InputError
from swelab.records.task_records import Task
from swelab.sandbox import open_backend
from swelab.tasks.kodcode.kodcode_rows import TESTS, SmallTask, read_folder, read_row, task_folders
from swelab.tasks.kodcode.kodcode_source import null_runs, task_row

JOURNAL = "null_runs.jsonl"
WHY = {
    "no_tests": "pytest finds no test in it",
    "tests_unknown": "its tests cannot be counted",
    "nothing_fails": "all its tests pass as it is",
    "all_skipped": "all its tests are skipped",
}


def is_debugging(source: Source) -> bool:
    """Returns whether the source contains debugging tasks.

    These are folders with test.py, or rows that have files and no patch. The first row that is a JSON object
    decides for the whole source. Raises InputError, HubError.
    """
    path = Path(source.data)
    if path.is_dir():
        return any((each / TESTS).is_file() for each in task_folders(path))
    if not path.is_file():
        return False
    first = next((raw for _, raw in source.rows() if isinstance(raw, dict)), {})
    return "instance_id" not in first and ("extra_info" in first or {"task_id", "files"} <= first.keys())


def debugging_tasks(
    plan: Plan, choose: Callable[[Sequence[Task]], list[Task]]
) -> tuple[Benchmark, list[Task]]:
    """Returns (the rows of the plan's source, the chosen tasks that can be used). Raises InputError, Fault. A
    row is refused with a reason if it is unreadable, or if all its tests pass on the unrepaired code."""
    benchmark, found = _read(plan.source)
    named = [Task.of({"instance_id": name}) for name in found]
    picked = [found[task.instance_id] for task in choose(named)]
    recipe = KodcodeSubset(source="kodcode", path=plan.source.data, test_timeout=plan.source.test_seconds)
    with Journal(plan.progress / JOURNAL) as journal:
        verdicts = null_runs(picked, recipe.test_timeout, open_backend, journal, plan.workers)
        for small, verdict in zip(picked, verdicts, strict=True):
            if verdict.reason:
                benchmark.refused[small.name] = WHY.get(verdict.reason, verdict.reason)
                continue
            try:
                benchmark.tasks.append(checked_task(task_row(small, verdict, recipe), small.where))
            except InputError as error:
                benchmark.refused[small.name] = str(error)
    if not benchmark.tasks:
        first = next(iter(benchmark.refused.values()), "it has no row")
        raise InputError(f"none of the {len(picked)} chosen tasks can be used: {first}", plan.source.data)
    return benchmark, list(benchmark.tasks)


def task_names(source: Source) -> list[str]:
    """Returns the names of the readable tasks, in the source's order. Raises InputError if no task is
    readable."""
    if not is_debugging(source):
        what = "neither debugging rows nor folders with test.py"
        raise InputError(what, source.data, "KodCode rows, or a folder for each task")
    return list(_read(source)[1])


def _read(source: Source) -> tuple[Benchmark, dict[str, SmallTask]]:
    """Returns (refused rows, readable tasks by name). Raises InputError if no task can be read."""
    benchmark, small_tasks = Benchmark(), dict[str, SmallTask]()
    for where, read in _readers(source):
        benchmark.rows += 1
        try:
            small = read()
        except InputError as error:
            benchmark.refused[where] = str(error)
            continue
        known = small_tasks.setdefault(small.name, small)
        if known is not small:
            same = (known.files, known.entrypoint) == (small.files, small.entrypoint)
            what = "the same row stands before it" if same else f"task_id {small.name} is there twice"
            benchmark.refused[where] = what
    if not small_tasks:
        first = next(iter(benchmark.refused.values()), "it has no row")
        raise InputError(f"none of {benchmark.rows} rows can be used: {first}", source.data)
    return benchmark, small_tasks


def _readers(source: Source) -> Iterator[tuple[str, Callable[[], SmallTask]]]:
    """Yields (location of the task, function that reads the task)."""
    entrypoint = source.entrypoint or None

    def of_folder(folder: Path) -> Callable[[], SmallTask]:
        return lambda: read_folder(folder, entrypoint)

    def of_row(where: str, raw: Any) -> Callable[[], SmallTask]:
        return lambda: read_row(raw, where, entrypoint)

    path = Path(source.data)
    if path.is_dir():
        yield from ((str(folder), of_folder(folder)) for folder in task_folders(path))
    else:
        yield from ((where, of_row(where, raw)) for where, raw in source.rows())
