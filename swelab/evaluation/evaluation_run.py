"""An evaluation from its plan to its files; the same command goes on where an earlier run stopped."""

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from swelab.evaluation import preconditions
from swelab.evaluation.attempt_folders import AttemptFolders
from swelab.evaluation.attempt_run import attempts, finished
from swelab.evaluation.benchmark_rows import Benchmark, read_benchmark
from swelab.evaluation.evaluated import Evaluated, evaluated
from swelab.evaluation.evaluation_plan import Plan
from swelab.evaluation.result_files import write_results
from swelab.grading.grading_stage import lost_grade
from swelab.images.image_names import images_of
from swelab.outcomes import RolloutEnd
from swelab.records import Fault, InputError, Record, check, read_json, write_json
from swelab.records.attempt_records import Trajectory
from swelab.records.task_records import Task
from swelab.rollouts.rollout_stage import lost_rollout
from swelab.tasks.pulled_for_tasks import pull_for_tasks
from swelab.tasks.task_images import leaks, refused, task_images

IDENTITY = "evaluation.json"
Choice = Callable[[Sequence[Task]], list[Task]]


def evaluate(plan: Plan, choose: Choice, *, checks: bool = True, dry: bool = False) -> Record:
    """Runs what is left of an evaluation; returns the content of its summary.json, which is written.

    choose: the tasks to attempt, of all that are usable. dry: only the checks. Raises InputError (no usable
    row, another evaluation's folder), Fault (a check failed, the model's service refuses, too much was lost):
    what is finished by then is in the files all the same.
    """
    began = time.monotonic()
    benchmark = read_benchmark(plan.source)
    without_archive(plan, benchmark)
    tasks = choose(benchmark.tasks)
    for told in benchmark.reasons():
        print(f"rows: {told}", file=sys.stderr)
    print(f"rows: {len(tasks)} tasks of {benchmark.rows} rows", file=sys.stderr, flush=True)
    check_identity(plan)
    if checks and _is_left(plan, tasks):
        preconditions.check(plan, tasks)
    if dry:
        return {}
    plan.progress.mkdir(parents=True, exist_ok=True)
    write_json(plan.folder / IDENTITY, plan.identity())
    before = minutes_before(plan.folder)
    plan, without = with_images(plan, tasks, benchmark)
    tasks = [task for task in tasks if task.instance_id not in benchmark.refused]
    todo = [task for task in tasks if task.instance_id not in without]
    folders = AttemptFolders(plan.folder, meta(plan))
    done = [
        _no_image(plan, task, n, without)
        for n in range(plan.samples)
        for task in tasks
        if task.instance_id in without
    ]
    fault: BaseException | None = None
    try:
        images = task_images(todo, plan.images, refuse_leaks=False)
        done += list(attempts(plan, todo, images, folders)) if todo else []
    except (Fault, KeyboardInterrupt) as error:
        fault = error
        known = {task.instance_id for task in todo}
        last = {(each.instance_id, each.sample): each for each in finished(plan)}
        done += [each for (name, _), each in last.items() if name in known]
    minutes = before + (time.monotonic() - began) / 60
    record = write_results(plan, benchmark, tasks, done, minutes)
    if fault:
        raise fault
    return record


def without_archive(plan: Plan, benchmark: Benchmark) -> None:
    """Refuses tasks whose repository archive is not there. Raises InputError where that is all of them."""
    for task in list(benchmark.tasks):
        path = plan.repos / f"{task.repo_recipe}.tar"
        if task.repo_recipe and not path.is_file():
            benchmark.refuse(task.instance_id, f"no such repository archive: {path}")
    if not benchmark.tasks:
        missing = next(reversed(benchmark.refused.values()))
        raise InputError(f"no task can be used: {missing}", expected="--repos-dir with these tasks' archives")


def _is_left(plan: Plan, tasks: Sequence[Task]) -> bool:
    """Whether something is left to do: an evaluation that is whole is written again without a check."""
    whole = [each for each in finished(plan) if not (each.is_lost or each.is_paused)]
    names = {task.instance_id for task in tasks}
    return sum(each.instance_id in names for each in whole) < len(tasks) * plan.samples


def check_identity(plan: Plan) -> None:
    """Raises InputError where the folder holds another evaluation."""
    path, own = plan.folder / IDENTITY, plan.identity()
    if path.is_file() and (held := read_json(path)) != own:
        names = [name for name in own if not isinstance(held, dict) or held.get(name) != own[name]]
        what = f"holds an evaluation with another {', '.join(names)}"
        raise InputError(what, plan.folder, "a folder of its own for each; or --redo-existing")


def minutes_before(folder: Path) -> float:
    """What earlier runs of an evaluation took."""
    path = folder / "summary.json"
    found = read_json(path) if path.is_file() else {}
    return float(found.get("minutes") or 0) if isinstance(found, dict) else 0.0


def forget(folder: Path) -> None:
    """Removes what makes an evaluation go on, so that all is done anew; earlier attempts' folders stay."""
    shutil.rmtree(folder / "progress", ignore_errors=True)
    for name in (IDENTITY, "summary.json"):
        (folder / name).unlink(missing_ok=True)


def meta(plan: Plan) -> Record:
    """What meta.json says of every attempt; no key, no row."""
    policy = plan.policy.plain()
    return {
        "model": plan.policy_name,
        "api_base": policy.get("api_base") or policy.get("endpoint"),
        "scaffold": plan.scaffold_name,
        "step_limit": getattr(plan.scaffold, "step_limit", getattr(plan.scaffold, "call_limit", None)),
        "sampling_params": policy.get("sampling"),
        "max_tokens": (policy.get("sampling") or {}).get("max_tokens"),
    }


def with_images(plan: Plan, tasks: Sequence[Task], benchmark: Benchmark) -> tuple[Plan, dict[str, str]]:
    """The plan with the record of its images, pulled if none was given; why tasks have no image, by id.

    Tasks whose image tells their answer are refused in `benchmark`. Raises InputError, RegistryUnreachable.
    """
    from dataclasses import replace

    wanted = [task for task in tasks if not task.repo_recipe]
    if not wanted:
        return plan, {}
    if plan.images is None:
        store = plan.image_store or plan.progress / "images"
        record = pull_for_tasks(
            images_of(wanted),
            store,
            plan.progress / "pulled.jsonl",
            prefix=plan.image_prefix,
            workers=plan.workers,
        )
        check(record, "images", store)
        write_json(store / "images.json", record)
        plan = replace(plan, images=store / "images.json")
    assert plan.images
    for name, what in leaks(wanted, plan.images).items():
        benchmark.refuse(name, f"its image tells its answer: {what}")
    left = [task for task in wanted if task.instance_id not in benchmark.refused]
    return plan, refused(left, plan.images)


def _no_image(plan: Plan, task: Task, sample: int, why: dict[str, str]) -> Evaluated:
    """The record of an attempt at a task whose image could not be had."""
    mark = {"policy": plan.policy_name, "subset": plan.source.name}
    reason = why[task.instance_id]
    trajectory = Trajectory.of(lost_rollout(task, reason) | mark)
    grade = lost_grade(task, RolloutEnd.SANDBOX_LOST, reason) | mark | ({"sample": sample} if sample else {})
    return evaluated(trajectory, sample, grade, "", 0.0)
