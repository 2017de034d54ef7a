"""Runs an evaluation from its plan to its output files. The same command resumes an interrupted
evaluation."""

import json
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from swelab.agents.agent import step_limit_of
from swelab.checks.finding import require
from swelab.evaluation import preconditions
from swelab.evaluation.attempt_folders import AttemptFolders
from swelab.evaluation.attempt_result import AttemptResult, attempt_result
from swelab.evaluation.attempt_run import attempt_losses, attempts, finished_attempts
from swelab.evaluation.benchmark_rows import Benchmark, read_benchmark
from swelab.evaluation.best_of import VisibleRuns, visible_runs
from swelab.evaluation.debugging_rows import debugging_tasks, is_debugging
from swelab.evaluation.evaluation_plan import Plan, without_secret
from swelab.evaluation.result_files import table, write_results
from swelab.grading.grading_stage import lost_grade
from swelab.grading.run_cache import Archive
from swelab.images.image_names import images_of
from swelab.jobs.journal import lock, read_journal
from swelab.jobs.lost_instances import ShardLost
from swelab.outcomes import RolloutEnd
from swelab.records import Fault, InputError, Record, check, read_json, shorten, write_json, write_jsonl
from swelab.records.attempt_records import Trajectory
from swelab.records.image_records import Images
from swelab.records.task_records import Task
from swelab.rollouts.rollout_stage import lost_rollout
from swelab.tasks.harbor.harbor_archives import write_archives
from swelab.tasks.pulled_for_tasks import pull_for_tasks
from swelab.tasks.task_images import leaks, task_images, unusable_tasks


class RunTime:
    """Total minutes of all runs. The minutes of earlier runs are read from `path`. Thread-safe. A killed run
    counts up to its last call of `note`. Raises InputError if `path` is not a JSON file."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic):
        self._path, self._clock, self._began = path, clock, clock()
        found = read_json(path) if path.is_file() else {}
        self._before = float(found.get("minutes") or 0) if isinstance(found, dict) else 0.0
        self._lock = threading.Lock()

    def note(self) -> float:
        """Writes the total minutes so far, and returns them."""
        with self._lock:
            minutes = self._before + (self._clock() - self._began) / 60
            write_json(self._path, {"minutes": minutes})
            return minutes


IDENTITY = "evaluation.json"
ATTEMPTS = ("results.jsonl", "rollouts.jsonl", "visible.jsonl", "[0-9]*of[0-9]*.jsonl")
"""Patterns of the names of journals of attempts. Other journals have images and runs without a patch."""
Choice = Callable[[Sequence[Task]], list[Task]]


class BudgetEnded(Fault):
    """Attempts wait for a higher budget."""


def evaluate(
    plan: Plan,
    choose: Choice,
    *,
    checks: bool = True,
    dry: bool = False,
    redo: bool = False,
    written: Callable[[Path, Record, Callable[[], object]], AttemptFolders] = AttemptFolders,
) -> Record:
    """Makes the missing attempts, writes the output files, and returns the content of summary.json.

    choose: selects the tasks to attempt. dry: only checks. redo: repeats the finished attempts at the chosen
    tasks. written: a function that makes the writer of the attempts' folders. Raises InputError if no row is
    usable or the folder belongs to another evaluation. Raises Fault if a check fails, or if the model's
    service refuses requests. Raises ShardLost after printing a table if too many attempts were lost, and
    BudgetEnded if attempts wait for a higher budget. If attempts end with an error, the files contain the
    finished attempts.
    """
    plan = with_archives(plan)
    benchmark, tasks = _benchmark(plan, choose)
    if not redo:
        check_identity(plan)
    if checks and (redo or _is_left(plan, tasks)):
        require(preconditions.look(plan, tasks))
    if dry:
        return {}
    if redo:
        forget(plan, {task.instance_id for task in tasks})
    plan.progress.mkdir(parents=True, exist_ok=True)
    write_json(plan.folder / IDENTITY, plan.identity())
    run_time = RunTime(plan.progress / "minutes.json")
    plan, without = with_images(plan, tasks, benchmark)
    tasks = [task for task in tasks if task.instance_id not in benchmark.refused]
    todo = [task for task in tasks if task.instance_id not in without]
    folders = written(plan.folder, meta(plan), run_time.note)
    done = _no_images(plan, tasks, without)
    made, seen, fault = _attempts(plan, todo, folders)
    done = [*done, *made]
    record = write_results(plan, benchmark, tasks, done, run_time.note(), seen)
    fault = fault or _excess(plan, done) or unpaid(done)
    if isinstance(fault, ShardLost | BudgetEnded):
        print("\n".join(table(record)), flush=True)
    if fault:
        raise fault
    return record


def _attempts(
    plan: Plan, todo: Sequence[Task], folders: AttemptFolders
) -> tuple[list[AttemptResult], VisibleRuns | None, BaseException | None]:
    """Returns (attempts, results of the visible tests, the exception that ended the run early or None)."""
    try:
        images = task_images(todo, plan.images, refuse_leaks=False)
        done = list(attempts(plan, todo, images, folders)) if todo else []
        return done, visible_runs(plan, todo, images, done), None
    except (Fault, KeyboardInterrupt) as error:
        known = {task.instance_id for task in todo}
        last = {(each.instance_id, each.sample): each for each in finished_attempts(plan)}
        return [each for (name, _), each in last.items() if name in known], None, error


def _excess(plan: Plan, done: Sequence[AttemptResult]) -> ShardLost | None:
    """Returns the error if too many attempts were lost, including those without an image. Otherwise returns
    None."""
    losses = attempt_losses(plan)
    for each in done:
        losses.note(each, each.is_lost or each.is_refused)
    try:
        losses.check(len(done))
    except ShardLost as fault:
        return fault
    return None


def unpaid(done: Sequence[AttemptResult]) -> BudgetEnded | None:
    """Returns the error if attempts wait for a higher budget. Otherwise returns None."""
    waiting = [each for each in done if each.is_paused]
    if not waiting:
        return None
    costs = [each.usage.cost for each in done if not (each.is_paused or each.is_lost) and each.usage.cost]
    one = f"; an attempt costs ${sum(costs) / len(costs):.4f} on average" if costs else ""
    return BudgetEnded(
        f"{waiting[0].reason}; {len(waiting)} of {len(done)} attempts wait{one}: raise --budget-dollars, or "
        "budget_dollars in the recipe, and run the same command"
    )


def with_archives(plan: Plan) -> Plan:
    """Returns the plan. If the data are Harbor's folders, the plan uses the repository archives inside these
    folders. Raises InputError."""
    place, repos = Path(plan.source.data), plan.progress / "repos"
    return replace(plan, repos=repos) if place.is_dir() and write_archives(place, repos) else plan


def _benchmark(plan: Plan, choose: Choice) -> tuple[Benchmark, list[Task]]:
    """Returns (all rows, the tasks to attempt). Prints the reasons of refused rows. Raises InputError,
    HubError."""
    if is_debugging(plan.source):
        benchmark, tasks = debugging_tasks(plan, choose)
    else:
        benchmark = read_benchmark(plan.source)
        without_archive(plan, benchmark)
        tasks = choose(benchmark.tasks)
    for reason in benchmark.reasons():
        print(f"rows: {reason}", file=sys.stderr)
    print(f"rows: {len(tasks)} tasks of {benchmark.rows} rows", file=sys.stderr)
    found = f"patches are judged with {plan.witness}" if plan.witness else "no witness file beside the tasks"
    print(f"witness: {found}", file=sys.stderr, flush=True)
    return benchmark, tasks


def without_archive(plan: Plan, benchmark: Benchmark) -> None:
    """Refuses tasks whose repository archive does not exist. Raises InputError if no task is left."""
    for task in list(benchmark.tasks):
        path = plan.repos / f"{task.repo_recipe}.tar"
        if task.repo_recipe and not path.is_file():
            benchmark.refuse(task.instance_id, f"no such repository archive: {path}")
    if not benchmark.tasks:
        missing = next(reversed(benchmark.refused.values()))
        raise InputError(f"no task can be used: {missing}", expected="--repos-dir with these tasks' archives")


def _is_left(plan: Plan, tasks: Sequence[Task]) -> bool:
    """Returns whether an attempt is missing. If none is missing, the output files are written again without
    checks."""
    whole = {
        (each.instance_id, each.sample)
        for each in finished_attempts(plan)
        if not (each.is_lost or each.is_paused)
    }
    return any((task.instance_id, n) not in whole for task in tasks for n in range(plan.samples))


def check_identity(plan: Plan) -> None:
    """Raises InputError if the folder contains another evaluation."""
    path, own = plan.folder / IDENTITY, plan.identity()
    if path.is_file() and (held := read_json(path)) != own:
        what = f"holds an evaluation with another {', '.join(_differences(held, own))}"
        raise InputError(what, plan.folder, "a folder of its own for each; or --redo-existing")


def _differences(earlier: object, own: object, name: str = "") -> Iterator[str]:
    """Yields a description of each setting that differs, with both values."""
    if isinstance(earlier, dict) and isinstance(own, dict):
        for key in dict.fromkeys([*own, *earlier]):
            yield from _differences(earlier.get(key), own.get(key), f"{name}.{key}" if name else key)
    elif earlier != own:
        before, now = (shorten(json.dumps(value), 60) for value in (earlier, own))
        yield f"{name or 'content'} ({now} here, {before} there)"


def forget(plan: Plan, names: set[str]) -> None:
    """Deletes the finished attempts at these instances, so that they are made again.

    If the folder contains another evaluation, all its attempts are deleted. The folders of earlier attempts,
    pulled images and the bill are kept. An interrupted attempt is resumed, and its paid answers are not paid
    again. Raises InputError if another process uses the folder.
    """
    path, progress = plan.folder / IDENTITY, plan.progress
    is_same = path.is_file() and read_json(path) == plan.identity()
    for journal in (path for pattern in ATTEMPTS for path in progress.glob(pattern)):
        _drop(journal, names if is_same else None, Archive(progress / "runs"))
    if not is_same:
        for each in (path, plan.folder / "summary.json", progress / "minutes.json"):
            each.unlink(missing_ok=True)


def _drop(journal: Path, names: set[str] | None, archive: Archive) -> None:
    """Deletes the rows of these tasks (None: of all tasks) from a journal. Also deletes the test runs and
    SWE-agent's folders of these rows. Raises InputError if another process uses the journal."""
    is_dropped = lambda row: names is None or row["instance_id"] in names  # noqa: E731
    with lock(journal):
        for row in filter(is_dropped, read_journal(journal)):
            if run := (row.get("grade") or {}).get("run"):
                archive.path(run).unlink(missing_ok=True)
            shutil.rmtree(journal.with_suffix(".swe-agent") / row["instance_id"], ignore_errors=True)
        write_jsonl(journal, (row for row in read_journal(journal) if not is_dropped(row)))


def meta(plan: Plan) -> Record:
    """Returns the fields of meta.json that are the same for all attempts. They contain no API key."""
    policy = plan.policy.plain()
    return {
        "model": plan.policy_name,
        "api_base": without_secret(policy.get("api_base") or policy.get("endpoint") or "") or None,
        "scaffold": plan.scaffold_name,
        "step_limit": step_limit_of(plan.scaffold),
        "sampling_params": policy.get("sampling"),
        "max_tokens": (policy.get("sampling") or {}).get("max_tokens"),
    }


def with_images(plan: Plan, tasks: Sequence[Task], benchmark: Benchmark) -> tuple[Plan, dict[str, str]]:
    """Pulls the images if the plan names no image record. Returns (plan with an image record, reasons).

    reasons: maps an instance id to the reason why its image is unusable. A task whose image contains the
    answer is refused in `benchmark`. Raises InputError (also if no task is left), RegistryUnreachable.
    """
    in_images = [task for task in tasks if task.in_image]
    if not in_images:
        return plan, {}
    if plan.images is None:
        store = plan.image_store or plan.progress / "images"
        record = pull_for_tasks(
            images_of(in_images),
            store,
            plan.progress / "pulled.jsonl",
            prefix=plan.image_prefix,
            workers=plan.workers,
        )
        check(record, Images, store)
        write_json(store / "images.json", record)
        plan = replace(plan, images=store / "images.json")
    assert plan.images
    for name, what in leaks(in_images, plan.images).items():
        benchmark.refuse(name, reason := f"its image tells its answer: {what}")
        print(f"rows: {name}: {reason}", file=sys.stderr)
        if all(task.instance_id in benchmark.refused for task in tasks):
            raise InputError(f"no task can be used: {name}: {reason}", expected="images without the answer")
    left = [task for task in in_images if task.instance_id not in benchmark.refused]
    return plan, unusable_tasks(left, plan.images)


def _no_images(plan: Plan, tasks: Sequence[Task], why: dict[str, str]) -> list[AttemptResult]:
    """Returns records of lost attempts for the tasks whose image is unusable. why: maps the ids of these
    tasks to reasons."""
    mark, results = {"policy": plan.policy_name, "subset": plan.source.name}, []
    for sample in range(plan.samples):
        for task in (task for task in tasks if task.instance_id in why):
            reason = why[task.instance_id]
            trajectory = Trajectory.of(lost_rollout(task, reason) | mark)
            grade = lost_grade(task, RolloutEnd.SANDBOX_LOST, reason) | mark
            grade = grade | ({"sample": sample} if sample else {})
            results.append(attempt_result(trajectory, sample, grade, "", 0.0))
    return results
