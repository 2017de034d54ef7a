"""The null run: runs a task's tests on its unchanged code.

This is the only evidence about a task without a known repair. To collect the tests, pytest must import the
code. If that fails, a stand-in replaces the code for the collection. The stand-in is a module in which every
name exists. In that case, all tests count as failing.
"""

import ast
import re
import tempfile
from contextlib import suppress
from pathlib import Path

from swelab.files.python_syntax import parse_python
from swelab.records import digest
from swelab.records.task_records import NullEnd, NullRun, Task, TaskFile
from swelab.records.typed import TypedRecord, field
from swelab.sandbox import Backend, ExecResult, Limits, Sandbox, SandboxError
from swelab.tasks.checkout import write_files
from swelab.tasks.kodcode.kodcode_rows import SmallTask

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
