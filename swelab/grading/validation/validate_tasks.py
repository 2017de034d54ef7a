"""Validates tasks: a task is kept if its gold patch always resolves it and an empty patch never does.

Gold patches are graded by the grader itself. With its gold patch, every task of a repository archive has the
archive's clean tree. So one run of a test command on that tree covers every task with that command.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from swelab.configs.kinds.kodcode_subset import NullValidation
from swelab.configs.kinds.subset import Validation
from swelab.files.json_streams import Outline
from swelab.grading import versions
from swelab.grading.evidence import GateRun, RunEvidence
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import fresh_sandbox
from swelab.grading.harness.logs import GROUPS, statuses
from swelab.grading.harness.patch_run import LOG_BYTES
from swelab.grading.harness.spec import read_spec
from swelab.grading.validation.validation_batches import Batch, gold_batches, rounds
from swelab.grading.validation.witness_stage import add_witnesses
from swelab.grading.witness_store import WitnessWriter
from swelab.jobs.journal import Journal
from swelab.jobs.resumable_run import run_shard
from swelab.outcomes import LOST_GRADES, GradeEnd
from swelab.records import Fault, InputError, Record, digest
from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import touched_paths
from swelab.records.task_records import NULL_ONLY, DroppedTask, KeptTask, Lock, Task
from swelab.sandbox import Limits, SandboxError
from swelab.tasks.checkout import RepoStore, gold_patch
from swelab.tasks.patch_application import apply_patch, encode_patch
from swelab.tasks.patch_text import reversed_patch
from swelab.tasks.published_rows import is_private


class NullBrief(Protocol):
    """The facts of a run of the unchanged code that decide about one task."""

    @property
    def unjudged(self) -> str:
        """Why the run has no result, or ""."""

    @property
    def missing(self) -> int:
        """How many listed tests do not pass."""

    @property
    def differs(self) -> str:
        """The first test whose outcome differs from the task's row, or ""."""


def has_no_gold(task: Task) -> bool:
    """Returns whether a task has no known repair, although it has tests or a script to judge one."""
    return task.answers == "none" or (task.by_script and not task.solution_tar)


def null_difference(task: Task, missing: Sequence[str]) -> str:
    """Returns the first test whose outcome differs from the row's lists (failing or passing), or ""."""
    failed = set(missing)
    wrong = [test for test in task.FAIL_TO_PASS if test not in failed]
    wrong += [test for test in task.PASS_TO_PASS if test in failed]
    return wrong[0] if wrong else ""


def null_sentence(runs: Sequence[NullBrief]) -> tuple[str, str]:
    """Returns ("kept" | "flaky" | "broken" | "unjudged", reason) from a task's runs of the unchanged code."""
    if whys := [run.unjudged for run in runs if run.unjudged]:
        return "unjudged", whys[0]
    if not all(run.missing for run in runs):
        return "broken", "an empty patch is resolved"
    other = [run.differs for run in runs if run.differs]
    if other:
        return "flaky", f"{len(other)} of {len(runs)} null runs differ from the row, such as in {other[0]}"
    return "kept", ""


def null_facts(task: Task) -> Record:
    """Returns the lock's fields about the validation of a task without a known repair.

    Returns {} for other tasks.
    """
    if not has_no_gold(task):
        return {}
    if task.null_run is None:
        return {"validated": NULL_ONLY}
    facts: Record = {"validated": NULL_ONLY, "fails": list(task.FAIL_TO_PASS)}
    facts["collected"] = task.null_run.collected
    return facts if task.null_run.imports else facts | {"imports": False}


def applies_again(task: Task, patch: str, store: RepoStore) -> bool:
    """Returns whether `patch` applies to the code with the bug, by `git apply` or `patch`, as for a
    prediction.
    """
    clean = store.clean_tree(task)
    with tempfile.TemporaryDirectory(dir=store.cache_dir) as scratch:
        tree = Path(scratch)
        for name in touched_paths(task.patch):
            if (clean / name).is_file():
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(clean / name, tree / name)
        try:
            if apply_patch(tree, task.patch).returncode:
                return True  # the grader will report why the task's patch does not apply
            if apply_patch(tree, patch, "--check").returncode == 0:
                return True
        except PatchRefused:
            return True  # the grader will report this too
        dry = ("patch", "--batch", "--forward", "--dry-run", "--fuzz=5", "-p1", "--directory", str(tree))
        return subprocess.run(dry, input=encode_patch(patch), capture_output=True).returncode == 0


_REWARD = "its reward"
"""Replaces the list of tests if a script judges the task."""


@dataclass(frozen=True)
class Brief:
    """The facts of a validation run that decide about one task.

    missing: number of the task's listed tests that do not pass. first: the first of these tests, or "".
    """

    status: str
    reason: str
    seconds: float
    unjudged: str
    missing: int
    first: str
    differs: str = ""
    """For a task without a known repair: the first test whose outcome differs from the task's row, or ""."""

    @classmethod
    def of(cls, task: Task, run: GateRun) -> "Brief":
        missing = _missing(task, run)
        first = missing[0] if missing else ""
        differs = null_difference(task, missing) if has_no_gold(task) else ""
        return cls(run.status, run.reason, run.seconds, run.unjudged, len(missing), first, differs)


def sentence(results: dict[str, list[Brief]]) -> tuple[str, str, int]:
    """Returns ("kept" | "flaky" | "broken" | "unjudged", reason, count of gold runs that resolved the
    task).
    """
    if "gold" not in results:
        return (*null_sentence(results["base"]), 0)
    golds = results["gold"]
    good = sum(not each.missing for each in golds)
    if whys := [each.unjudged for found in results.values() for each in found if each.unjudged]:
        return "unjudged", whys[0], good
    if good < len(golds):
        failed = next(each for each in golds if each.missing)
        why = f"{failed.missing} tests do not pass, such as {failed.first}"
        if failed.status not in (GradeEnd.RESOLVED, GradeEnd.UNRESOLVED) or failed.first == _REWARD:
            why = f"{failed.status}: {failed.reason}"
        part = "flaky" if good else "broken"
        return part, f"the gold patch is resolved in {good} of {len(golds)} runs ({why})", good
    if not results["base"][0].missing:
        return "broken", "an empty patch is resolved", good
    if any(each.status == GradeEnd.RESOLVED for each in results.get("reversed", ())):
        return "broken", "the reverse of the gold patch is resolved", good
    return "kept", "", good


def _missing(task: Task, run: GateRun) -> list[str]:
    if task.by_script:
        return [] if run.status == GradeEnd.RESOLVED else [_REWARD]
    judged_tests = run.status in (GradeEnd.RESOLVED, GradeEnd.UNRESOLVED, "ran")
    passed = set(run.passed if judged_tests else ())
    return [test for group in GROUPS for test in task[group] if test not in passed]


BLOCK = 2000
"""Maximum number of tasks that are in memory at once."""


@dataclass(frozen=True)
class GateJob:
    """A validation run. kind: gold (the gold patch), base (no patch) or reversed (the reverse of the gold
    patch).

    number: distinguishes equal runs of the same batch.
    """

    kind: str
    batch: Batch
    number: int = 0


def validate(
    tasks: Iterable[Task],
    settings: Validation | NullValidation,
    bench: Bench,
    journal: Journal,
    workers: int,
    refused: Mapping[str, str] = MappingProxyType({}),
    writer: WitnessWriter | None = None,
) -> Lock:
    """Validates `tasks` and returns their lock (schema `lock`). Finished runs are recorded in the journal.

    settings: the recipe's `validate`. refused: maps instance ids of tasks that must not be tried to a reason.
    These tasks become broken. writer: stores the witnesses of kept tasks. Without a writer no witnesses are
    made.

    A task becomes unjudged if the guard itself fails on it. A task without a known repair is validated only
    by runs of the unchanged code: the same tests must fail in every run. Tasks with private answers are kept
    without a run. BLOCK tasks are in memory at a time, and only the verdicts of earlier blocks. Tasks of one
    block share runs.

    Raises InputError if tasks are unusable or no task is kept. Raises Fault if runs were lost to
    infrastructure repeatedly.
    """
    outline = Outline()
    kept_tasks: list[KeptTask] = []
    parts: dict[str, list[DroppedTask]] = {"flaky": [], "broken": [], "unjudged": []}
    rows, private, null_tasks = map(outline.add, tasks), 0, 0
    while block := list(islice(rows, BLOCK)):
        usable = [task for task in block if task.instance_id not in refused]
        tried = [task for task in usable if not is_private(task)]
        private += len(usable) - len(tried)
        null_tasks += sum(map(has_no_gold, block))
        seen = _runs(tried, settings, bench, journal, workers)
        passed: list[KeptTask] = []
        for task in block:
            part, row = _judge(task, seen.get(task.instance_id, {}), bench, refused)
            if isinstance(row, KeptTask):
                passed.append(row)
            else:
                parts[part].append(row)
        together = isinstance(settings, Validation) and settings.together
        kept_tasks += (
            add_witnesses(passed, tried, bench, journal, workers, writer, together) if writer else passed
        )
    counts = {"null_tasks": null_tasks, "private": private}
    return _lock(outline, kept_tasks, parts, counts, settings, bench.witnesses.guard)


def _lock(
    outline: Outline,
    tasks: list[KeptTask],
    parts: dict[str, list[DroppedTask]],
    counts: dict[str, int],
    settings: Validation | NullValidation,
    guard: str,
) -> Lock:
    """Returns the lock of judged tasks.

    counts: fields that are omitted if 0. Raises InputError if no task is kept.
    """
    if not tasks and outline.ids:
        row = [*parts["unjudged"], *parts["broken"], *parts["flaky"]][0]
        raise InputError(f"no task is valid; {row.instance_id}: {row.reason}", "", "gold patches that work")
    gate = {"gold_runs": 0} | settings.plain() | ({"guard": guard} if guard != "whole" else {})
    facts = {"tasks_digest": outline.digest, "total": len(outline.ids), "settings": gate, "kept": tasks}
    facts |= {part: rows for part, rows in parts.items() if rows or part != "unjudged"}
    return Lock.of(facts | {name: count for name, count in counts.items() if count})


def _runs(
    tasks: list[Task], settings: Validation | NullValidation, bench: Bench, journal: Journal, workers: int
) -> dict[str, dict[str, list[Brief]]]:
    """Returns the results of all runs that the tasks need, by instance id and kind of run.

    Raises Fault if runs were lost.
    """
    jobs = list(_jobs(tasks, settings, bench))
    results = run_shard(
        [(key_of(job, bench), job) for job in jobs],
        lambda: nullcontext(lambda job: _work(job, bench)),
        journal,
        workers=workers,
        label="validate",
        kind=GateRun,
        is_lost=lambda run: bool(run.lost),
        is_good=lambda run: not run.lost,
    )
    by_task: dict[str, dict[str, list[Brief]]] = {}
    lost = []
    for job, run in zip(jobs, results, strict=True):
        if run.lost:
            lost.append(run.lost)
        for task in job.batch.tasks:
            kinds = by_task.setdefault(task.instance_id, {})
            kinds.setdefault(job.kind, []).append(Brief.of(task, run))
    if lost:
        raise Fault(f"{len(lost)} validation runs were lost to infrastructure, such as: {lost[0]}")
    return by_task


def _jobs(tasks: list[Task], settings: Validation | NullValidation, bench: Bench) -> Iterator[GateJob]:
    """Yields the validation runs.

    Raises InputError if a task has no known repair but `settings` expect one.
    """
    if isinstance(settings, NullValidation):
        numbered = ((task, number) for task in tasks for number in range(settings.null_runs))
        yield from (GateJob("base", Batch.of(task), number) for task, number in numbered)
        return
    if odd := next((task for task in tasks if task.answers == "none"), None):
        raise InputError("no repair is known", odd.instance_id, "a subset with `source: kodcode`")
    together, numbers = settings.together, range(settings.gold_runs)
    golden = [task for task in tasks if not has_no_gold(task)]
    for batch in gold_batches(golden, bench, together):
        yield from (GateJob("gold", batch, number) for number in numbers)
    for batch in rounds(golden, bench, together):
        yield GateJob("base", batch)
    for task in tasks:
        if has_no_gold(task):
            yield from (GateJob("base", Batch.of(task), number) for number in numbers)
        elif not task.by_script:
            yield GateJob("reversed", Batch.of(task))


def key_of(job: GateJob, bench: Bench) -> str:
    """Returns the key of a validation run in the journal and the archive."""
    batch = job.batch
    places = [bench.ground(task) for task in batch.tasks]
    grader = [versions.RUN, versions.GRADER, versions.GATE]
    return digest(["validate", grader, job.kind, job.number, batch.row, batch.tasks, places])


def _work(job: GateJob, bench: Bench) -> GateRun:
    batch = job.batch
    run: RunEvidence | None
    try:
        if job.kind == "base":
            result, run = _base(batch, bench)
        elif job.kind == "reversed":
            result, run = _grade_reverse(batch.tasks[0], bench)
        else:
            result, run = _gold(batch.row, bench)
    except (SandboxError, OSError, MemoryError) as error:
        result, run = _gate_run(GradeEnd.INFRA_ERROR, f"{type(error).__name__}: {error}", [], 0.0), None
    if run:
        bench.archive.put(key_of(job, bench), run | {"made": bench.conditions(batch.row)})
    return result | {"kind": job.kind, "instances": [task.instance_id for task in batch.tasks]}


def _gate_run(status: str, reason: str, passed: list[str], seconds: float) -> GateRun:
    lost = reason if status in LOST_GRADES else ""
    return GateRun(status=status, reason=reason, passed=passed, seconds=seconds, lost=lost)


def _gold(task: Task, bench: Bench) -> tuple[GateRun, RunEvidence]:
    """Grades the gold patch.

    If a script judges the task, the gold patch consists of the changes that the task's solution makes.
    """
    if task.by_script:
        solved = bench.solve(task)
        result, run = _run_and_grade(task, solved.patch, bench)
        reason = "; ".join(filter(None, [result.reason, solved.fault]))
        return result | {"reason": reason}, run
    image = task.instance_id in bench.images
    return _run_and_grade(task, read_spec(task).gold_fix if image else gold_patch(bench.store, task), bench)


def _run_and_grade(task: Task, patch: str, bench: Bench) -> tuple[GateRun, RunEvidence]:
    """Runs a patch and grades it like a prediction. Returns the result and the evidence."""
    run = bench.run_anew(task, patch, allow_empty=True)
    grade = bench.grade_of(task, patch, run)
    passed = [test for group in (grade.tests_status or {}).values() for test in group.success]
    told = _gate_run(grade.status, grade.reason, passed, grade.seconds)
    if run.guard_fault:
        told = told | {"lost": "", "unjudged": f"the guard itself failed: {run.guard_fault}"}
    if task.by_script and has_no_gold(task) and grade.reward is None:
        told = told | {"unjudged": f"nobody saw its script give a reward: {grade.reason}"}
    return told, run | {"patch": patch}


def _base(batch: Batch, bench: Bench) -> tuple[GateRun, RunEvidence]:
    """Runs the tests on the code with the bug, as with an empty patch."""
    task = batch.row
    if task.instance_id in bench.images or has_no_gold(task):
        return _run_and_grade(task, "", bench)
    spec = read_spec(task)
    assert bench.backend is not None
    with fresh_sandbox(spec, task, bench.store, bench.backend, Limits(), None, batch.tasks[1:]) as sandbox:
        bounds = Limits(wall_seconds=spec.seconds, cpu_seconds=2 * spec.seconds, output_bytes=LOG_BYTES)
        result = sandbox.exec(spec.test_cmd, limits=bounds)
    log, seconds = result.output.decode("utf-8", "replace"), round(result.seconds, 3)
    status = statuses(log, spec.parser)
    passed = [test for test in spec.listed if status.get(test) in ("PASSED", "XFAIL")]
    run = {"ended": "ran", "reason": result.limit, "log": log, "code": result.returncode, "seconds": seconds}
    return _gate_run("ran", result.limit, passed, seconds), RunEvidence.of(run | {"patch": ""})


def _grade_reverse(task: Task, bench: Bench) -> tuple[GateRun, RunEvidence | None]:
    """Grades the reverse of the gold patch.

    The reverse rarely applies. So the patch is tried before a sandbox is started.
    """
    spec = read_spec(task)
    try:
        patch = spec.gold if spec.gold_reversed else reversed_patch(spec.gold)
    except ValueError:
        return _gate_run(GradeEnd.APPLY_FAILED, "", [], 0.0), None
    if task.instance_id not in bench.images and not applies_again(task, patch, bench.store):
        return _gate_run(GradeEnd.APPLY_FAILED, "", [], 0.0), None
    return _run_and_grade(task, patch, bench)


def _judge(
    task: Task, results: dict[str, list[Brief]], bench: Bench, refused: Mapping[str, str]
) -> tuple[str, KeptTask | DroppedTask]:
    """Returns (part of the lock to which a task belongs, the task's row in that part)."""
    name, part, reason, resolved = task.instance_id, "kept", "", 0
    if name in refused:
        part, reason = "broken", refused[name]
    elif not is_private(task):
        part, reason, resolved = sentence(results)
        image = bench.images.get(name)
        reason += f"; {image.install}" if image and image.install else ""
    if part != "kept":
        return part, DroppedTask(instance_id=name, reason=reason, gold_resolved=resolved)
    seconds = max((each.seconds for each in results.get("gold", results.get("base", ()))), default=0.0)
    row = KeptTask(instance_id=name, task=digest(task), place=bench.place(task), seconds=seconds)
    return part, row | null_facts(task)
