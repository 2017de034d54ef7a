"""The task source `kodcode`: each task is a test file and a code file, without a known repair.

The null run (the tests on the unchanged code) shows which tests fail. A task is dropped, and counted, if all
its tests pass or they cannot be listed.

To collect the tests, pytest must import the code. If that fails, a stand-in replaces the code for the
collection: a module in which every name exists. In that case, all tests count as failing.
"""

import ast
import hashlib
import json
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from itertools import islice
from pathlib import Path

from swelab.configs.kinds.kodcode_subset import KodcodeSubset
from swelab.files.json_streams import RowSelection, Spool
from swelab.files.python_syntax import parse_python
from swelab.jobs.journal import Journal
from swelab.jobs.resumable_run import run_shard
from swelab.records import Fault, InputError, Record, digest
from swelab.records.task_records import NullEnd, NullRun, Task, TaskFile
from swelab.records.typed import TypedRecord, field
from swelab.sandbox import Backend, ExecResult, Limits, Sandbox, SandboxError
from swelab.tasks.checkout import write_files
from swelab.tasks.kodcode.kodcode_rows import SmallTask, read_small_tasks
from swelab.tasks.split import side_of

VERSION = 1
"""Part of every journal key. Increase this number if the same task could now get another verdict."""
REPORTING = "-rA -p no:cacheprovider"
"""Options added to the entry point, so that pytest prints a line for each test."""
_COLLECTING = "--collect-only --verbosity=-1 -p no:cacheprovider"
_TEST = re.compile(r"^([\w./-]+\.py::\S.*)$", re.MULTILINE)
_LINE = re.compile(r"^(PASSED|FAILED|ERROR|XFAIL|XPASS|SKIPPED) (\S+)", re.MULTILINE)
_DEFINED = re.compile(r"^(?:async def|def|class)[ \t]+(\w+)", re.MULTILINE)
_UNSTEADY = ("MagicMock", " at 0x")
_STAND_IN = '''"""Stands in for code that cannot be imported while its tests are counted."""

from unittest.mock import MagicMock

__all__ = {names!r}


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock(name=name)
'''


class NullVerdict(TypedRecord):
    """The verdict of a task's null run. It is a line of a journal."""

    reason: str = field("why the task is refused; empty if it is accepted", default="")
    failing: list[str] = field("tests that do not pass", default=())
    passing: list[str] = field("tests that pass", default=())
    run: NullRun | None = field("record of the run", default=None, type="object")
    lost: str = field("why infrastructure lost the run", default="")


def tests_of(task: SmallTask) -> str:
    """Returns the command that judges a task's tests.
    This is the task's entry point, with options to print a line for each test."""
    return f"{task.entrypoint} {REPORTING}"


def null_key(task: SmallTask, seconds: int) -> str:
    """Returns the journal key of a task's null run."""
    return digest([VERSION, task.entrypoint, task.files, task.code, seconds])


def null_run(task: SmallTask, backend: Backend, seconds: int) -> NullVerdict:
    """Runs a task's tests on its unchanged code, in a fresh sandbox. seconds: maximum wall time of a run."""
    limits = Limits(wall_seconds=seconds, cpu_seconds=2 * seconds, output_bytes=8 << 20)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="swelab-null-") as folder,
            _sandbox(task, Path(folder), backend, limits) as sandbox,
        ):
            return _verdict(task, sandbox, limits)
    except (SandboxError, OSError, MemoryError) as error:
        return NullVerdict(lost=f"{type(error).__name__}: {error}")


def _sandbox(task: SmallTask, tree: Path, backend: Backend, limits: Limits) -> Sandbox:
    listed = [TaskFile(path=path, content=text) for path, text in task.files.items()]
    write_files(Task.of({"instance_id": task.name, "files": listed}), tree)
    return backend.start(tree, limits=limits)


def _verdict(task: SmallTask, sandbox: Sandbox, limits: Limits) -> NullVerdict:
    collecting = f"{task.entrypoint} {_COLLECTING}"
    done = sandbox.exec(collecting, limits=limits)
    tests = _collected_tests(done)
    if not tests and not done.timed_out and done.returncode == 5:
        return NullVerdict(reason="no_tests")
    if tests and done.returncode == 0:
        return _null_verdict(tests, sandbox.exec(tests_of(task), limits=limits))
    sandbox.put(task.code, stand_in(task.files[task.code]).encode())
    tests = _collected_tests(again := sandbox.exec(collecting, limits=limits))
    if not tests or again.returncode or any(word in test for test in tests for word in _UNSTEADY):
        return NullVerdict(reason="tests_unknown")
    ended: NullEnd = "too long" if done.timed_out else "broken off"
    run = NullRun(collected=len(tests), imports=False, collected_by="stand-in", ended=ended)
    return NullVerdict(failing=_shorten(tests), passing=[], run=run)


def _null_verdict(tests: list[str], result: ExecResult) -> NullVerdict:
    """Returns the verdict from a run of the collected tests."""
    words: dict[str, set[str]] = {}
    for word, test in _LINE.findall(result.output.decode("utf-8", "replace")):
        words.setdefault(test, set()).add(word)
    ended: NullEnd = "ran" if words and result.returncode in (0, 1) else "broken off"
    ended = "too long" if result.timed_out else ended
    listed, said = _shorten(tests), {"PASSED", "FAILED", "ERROR"}
    skipped = [test for test in listed if not words.get(test, set()) & said] if ended == "ran" else []
    left = [test for test in listed if test not in set(skipped)]
    passing = [test for test in left if words.get(test) == {"PASSED"}]
    failing = [test for test in left if words.get(test) != {"PASSED"}]
    run = NullRun(collected=len(tests), imports=True, collected_by="code", ended=ended)
    run = run | {"skipped": skipped} if skipped else run
    reason = "" if failing else "nothing_fails" if passing else "all_skipped"
    return NullVerdict(reason=reason, failing=failing, passing=passing, run=run)


def _collected_tests(result: ExecResult) -> list[str]:
    return list(dict.fromkeys(_TEST.findall(result.output.decode("utf-8", "replace"))))


def _shorten(tests: list[str]) -> list[str]:
    """Truncates test ids at their first space, as in logs. Removes duplicates."""
    return list(dict.fromkeys(test.split()[0] for test in tests))


def stand_in(code: str) -> str:
    """Returns the source of a module that tests can import instead of `code`.
    Any name can be imported from it. `import *` imports the names that `code` defines."""
    names = _DEFINED.findall(code)
    with suppress(SyntaxError, ValueError, RecursionError):
        tree = parse_python(code)
        assigned = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
        names += [target.id for target in assigned if isinstance(target, ast.Name)]
    public = [name for name in dict.fromkeys(names) if not name.startswith("_")]
    return _STAND_IN.format(names=public)


HASHES = Path(__file__).with_name("evaluation_sets.json")
DIGITS = 12
"""Number of hex digits of a stored hash. In a set of 15,000 other ids, the chance of a match is 1 in 10^7."""


@cache
def known_ids() -> dict[str, str]:
    """Maps the hash of an instance's id to the name of the evaluation set."""
    found: dict[str, str] = {}
    for name, text in json.loads(HASHES.read_text(encoding="utf-8")).items():
        found.update((text[at : at + DIGITS], name) for at in range(0, len(text), DIGITS))
    return found


def hash_of(instance_id: str) -> str:
    """Returns the hash of an instance's id, in the form of HASHES."""
    return hashlib.sha256(instance_id.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]


def evaluation_set(instance_id: str) -> str:
    """Returns the evaluation set that has an instance of this id, or ""."""
    return known_ids().get(hash_of(instance_id), "")


BLOCK = 500
"""Number of tasks that are held in memory at once."""
IMAGE = "swelab/kodcode"


def make_tasks(
    recipe: KodcodeSubset, open_backend: Callable[[], Backend], progress: Path, workers: int
) -> tuple[Sequence[Task], dict[str, int]]:
    """Returns the task rows of a `kodcode` recipe, and how many tasks were dropped for each reason.

    progress: journal of null runs. A larger limit gives the same first rows. Raises InputError for a broken
    row or folder, or if no task is left. Raises Fault if runs were lost to infrastructure repeatedly.
    """
    drops: Counter[str] = Counter()
    spool, numbers = Spool(), list[int]()
    chosen = _choose_tasks(recipe, drops)
    most = recipe.limit or sys.maxsize
    with Journal(progress) as journal:
        while len(numbers) < most and (block := list(islice(chosen, min(BLOCK, most - len(numbers))))):
            for task, verdict in zip(
                block, null_runs(block, recipe.test_timeout, open_backend, journal, workers)
            ):
                if verdict.reason:
                    drops[verdict.reason] += 1
                else:
                    numbers.append(spool.add(task_row(task, verdict, recipe)))
    if over := sum(1 for _ in chosen):
        drops["over_limit"] = over
    if not numbers:
        raise InputError(f"no row is a task ({dict(drops)})", recipe.path, "tasks of which a test fails")
    rows = RowSelection(spool, numbers, Task)
    _tell_evaluation(rows)
    return rows, dict(sorted(drops.items()))


def _choose_tasks(recipe: KodcodeSubset, drops: Counter[str]) -> Iterator[SmallTask]:
    """Yields the tasks on the recipe's side of the split, except tasks of excluded evaluation sets.
    Counts dropped tasks in `drops`. Raises InputError for a task_id with two contents."""
    digests: dict[str, str] = {}
    for task in read_small_tasks(Path(recipe.path).expanduser(), recipe.entrypoint):
        same = digest([task.files, task.entrypoint])
        if task.name in digests and digests[task.name] != same:
            raise InputError(f"duplicate task_id {task.name}", task.where, "unique ids")
        if task.name in digests:
            drops["repeated_row"] += 1
        elif _set_of(task.name, recipe) in recipe.leave_out:
            drops["evaluation_row"] += 1
        elif recipe.side and side_of("kodcode", task.name, recipe.heldout_share) != recipe.side:
            drops["other_side"] += 1
        else:
            yield task
        digests[task.name] = same


def _set_of(name: str, recipe: KodcodeSubset) -> str:
    """Returns the evaluation set to which an instance belongs, or ""."""
    return recipe.evaluation_set or evaluation_set(name)


def null_runs(
    tasks: Sequence[SmallTask],
    seconds: int,
    open_backend: Callable[[], Backend],
    journal: Journal,
    workers: int,
) -> Iterator[NullVerdict]:
    """Yields a null run's verdict on each task. Raises Fault if runs were lost.
    seconds: maximum wall time of a task's tests."""

    def work(backend: Backend) -> Callable[[SmallTask], NullVerdict]:
        return lambda task: null_run(task, backend, seconds)

    verdicts = run_shard(
        [(null_key(task, seconds), task) for task in tasks],
        lambda: nullcontext(work(open_backend())),
        journal,
        workers=workers,
        label="null runs",
        kind=NullVerdict,
        is_lost=lambda verdict: bool(verdict.lost),
        is_good=lambda verdict: not verdict.reason,
    )
    for verdict in verdicts:
        if verdict.lost:
            raise Fault(f"a null run was lost to infrastructure: {verdict.lost}")
        yield verdict


def task_row(task: SmallTask, verdict: NullVerdict, recipe: KodcodeSubset) -> Task:
    """Returns a row in our schema without a patch.
    It contains the task's files and the results of the null run."""
    row: Record = {
        "instance_id": task.name,
        "repo": f"kodcode/{recipe.evaluation_set or Path(recipe.path).stem}",
        "patch": "",
        "problem_statement": task.statement,
        "FAIL_TO_PASS": list(verdict.failing),
        "PASS_TO_PASS": list(verdict.passing),
        "image_name": IMAGE,
        "base_commit": "",
        "answers": "none",
        "source": "kodcode",
        "files": [TaskFile(path=path, content=text) for path, text in task.files.items()],
        "entrypoint": task.entrypoint,
        "test_cmd": tests_of(task),
        "log_parser": "parse_log_pytest",
        "test_files": [path for path in task.readonly if path != task.code],
        "readonly": list(task.readonly),
        "test_timeout": recipe.test_timeout,
        "bug": digest(sorted(task.files.items()))[:16],
        "hint": {"path": task.code},
        "null_run": verdict.run,
    }
    if task.hidden:
        row["hidden_tests"] = True
    if name := _set_of(task.name, recipe):
        row["evaluation_set"] = name
    compat = recipe.compat.model_dump(exclude_defaults=True)
    return Task.of(row | ({"compat": compat} if compat else {}))


def _tell_evaluation(rows: Iterable[Task]) -> None:
    """Prints how many rows belong to each evaluation set."""
    counts = Counter(name for task in rows if (name := task.evaluation_set))
    for name, count in counts.items():
        print(f"{count} tasks are of the evaluation set {name}: none is trained or validated on",
              file=sys.stderr)  # fmt: skip
