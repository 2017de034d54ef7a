"""Runs the agent's patch against the tests that the agent could see, without any hidden test.

The sandbox is like the agent's at its start: it has no hidden test files and no test patch. Only pytest's own
log is read.
"""

import shlex
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from swelab.grading import evidence
from swelab.grading.grading_stage import Bench
from swelab.grading.harness import logs, script
from swelab.grading.harness.grade import limits_of, read_prediction
from swelab.grading.harness.patch_run import PatchRun
from swelab.grading.harness.spec import RunSpec, read_spec
from swelab.outcomes import GradeEnd
from swelab.records import digest
from swelab.records.task_records import Task
from swelab.records.typed import Count, TypedRecord, field
from swelab.sandbox import Limits, Sandbox, SandboxError
from swelab.tasks.image_history import HistoryRefused, prepare

VERSION = 2
"""Version number of visible-test runs. Increment it if the same patch could now get another result."""
NONE_SEEN = "no test that can be run is in the agent's checkout"
_COMMAND = """set --; for each in {files}; do [ -f "$each" ] && set -- "$@" "$each"; done
{pytest} -rA --tb=no -q -p no:cacheprovider "$@"
"""


class VisibleRun(TypedRecord):
    """The result of the visible tests on one patch."""

    instance_id: str = field("id of the task")
    ended: str = field("ran, not_applied, infra_error, or how the run ended before the tests")
    passed: Count = field("number of visible tests that passed")
    failed: Count = field("number of visible tests that failed or could not be run")
    repairs: bool = field("whether tests to repair are among the visible tests", default=False)
    reason: str = field("why there is no result", default="")
    key: str = field("hash of everything that the run depends on", default="")

    @property
    def is_lost(self) -> bool:
        """Whether the run was lost to infrastructure."""
        return self.ended == GradeEnd.INFRA_ERROR


def visible_key(task: Task, patch: str, bench: Bench) -> str:
    """Returns the hash of all inputs of a visible-test run.

    Raises InputError if there is no repository archive or image.
    """
    return digest(["visible", VERSION, task, patch, bench.place(task)])


def visible_spec(task: Task) -> RunSpec | None:
    """Returns the run specification for the visible tests of a task, or None if pytest does not run its
    tests.

    The command runs the task's test files that exist in the agent's checkout. If none of them exists, it runs
    all tests. Raises InputError if the task does not say how to test it.
    """
    spec = read_spec(task)
    command = spec.eval_script or spec.test_cmd
    hidden = task.failing_files if task.hidden_tests or task.is_bug and task.in_image else []
    files = [path for path in spec.test_paths if path.endswith(".py") and path not in hidden]
    files = [path for path in files if path.rpartition("/")[2] != "conftest.py"]
    if not script.runs_of_pytest(command):
        return None
    text = _COMMAND.format(files=shlex.join(files), pytest=script.launcher(command))
    return replace(
        spec,
        test_cmd=text,
        eval_script="",
        test_patch="",
        tests_diff="",
        gold="",
        setup=(),
        parser=logs.DEFAULT_PARSER,
        test_files=tuple(spec.test_paths),
    )


def run_visible(task: Task, patch: str, bench: Bench) -> VisibleRun:
    """Runs the agent's patch against the tests that the agent could see.

    Raises InputError if the task is unusable.
    """
    spec, name = visible_spec(task), task.instance_id
    result = VisibleRun(instance_id=name, ended="ran", passed=0, failed=0)
    if spec is None:
        return result | {"reason": NONE_SEEN}
    changes, refused = read_prediction(task, patch, allow_empty=False)
    if refused:
        unread = {"ended": "not_applied"} if refused["ended"] == GradeEnd.TAMPERED else {}
        return result | refused | unread
    try:
        with agent_sandbox(task, bench) as (sandbox, limits):
            run = evidence.ended_run("ran") | PatchRun(spec, changes, sandbox, limits, frozenset()).evidence()
    except (SandboxError, HistoryRefused, OSError, MemoryError) as error:
        return result | {"ended": GradeEnd.INFRA_ERROR, "reason": f"{type(error).__name__}: {error}"}
    if run.ended != "ran":
        return result | {"ended": run.ended, "reason": run.reason}
    status = {test: word for test, word in logs.statuses(run.log).items() if test not in task.tests_left_out}
    counts = Counter(status.values())
    repairs = not task.test_patch and not status.keys().isdisjoint(spec.fail_to_pass)
    told = {"passed": counts["PASSED"], "failed": counts["FAILED"] + counts["ERROR"], "repairs": repairs}
    return result | told | ({} if status else {"reason": NONE_SEEN})


@contextmanager
def agent_sandbox(task: Task, bench: Bench) -> Iterator[tuple[Sandbox, Limits]]:
    """Yields a sandbox in the state in which the agent's sandbox started, and the limits of its commands.

    Raises InputError if there is no image or archive. Raises SandboxError, HistoryRefused, OSError.
    """
    image = bench.images.get(task.instance_id)
    limits = limits_of(Limits(), image)
    assert bench.backend is not None, "a bench without sandboxes runs nothing"
    if image is not None:
        with bench.backend.start(None, image=image, limits=limits) as sandbox:
            prepare(sandbox, task)
            yield sandbox, limits
        return
    with (
        bench.store.scratch_checkout(task, for_agent=True) as tree,
        bench.backend.start(tree, limits=limits) as sandbox,
    ):
        yield sandbox, limits
