"""Runs a configuration file of debug-gym as an evaluation, and names the output files as debug-gym does."""

import os
import re
import sys
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

from swelab.evaluation.attempt_folders import AttemptFolders
from swelab.evaluation.benchmark_rows import Source
from swelab.evaluation.debug_gym_config import (
    RunRequest,
    Settings,
    backend_of,
    plan_of_settings,
    read_settings,
    selected_problems,
    source_of,
)
from swelab.evaluation.debug_gym_folders import (
    ERROR,
    RESOLVED,
    SKIPPED,
    UNRESOLVED,
    DebugGymFolders,
    add_experiment,
    read_status,
    write_status,
    write_summary,
)
from swelab.evaluation.debugging_rows import task_names
from swelab.evaluation.evaluation_plan import Plan
from swelab.evaluation.evaluation_run import check_identity, evaluate, forget
from swelab.records import InputError, Record, write_bytes, write_json
from swelab.records.task_records import Task

OWN = "evaluation"
"""Name of the folder with swelab's own files, inside a run's folder."""
BACKEND = "SWELAB_BACKEND"


class Force(StrEnum):
    """Selects the finished problems to run again."""

    NONE = "none"
    FAILED = "failed"
    ALL = "all"


def run_configuration(
    request: RunRequest, root: Path, force: Force = Force.NONE, most: int = 0
) -> tuple[list[str], int]:
    """Runs the unfinished problems. Returns (lines of summary.txt, number of problems with the status
    "error").

    root: root folder of the swelab clone. most: maximum number of problems to run. 0 means all. Raises
    InputError and Fault. If an evaluation fails, summary.txt still lists the problems that are finished.
    """
    settings = read_settings(request)
    runs = run_folder(settings)
    plan = plan_of_settings(settings, request, runs / OWN, root)
    names, problems = _problems(settings, plan.source, request.config, most)
    if backend := backend_of(settings, request.config):
        os.environ.setdefault(BACKEND, backend)
    print(f"results are in {runs}; -p base.uuid={runs.name} goes on there", file=sys.stderr, flush=True)
    excluded = settings.get("excluded_ids") or []
    add_experiment(runs, root, _public_settings(settings), plan.options | {"force": str(force), "most": most})
    _prepare(plan, runs, problems, excluded, force)
    try:
        _evaluate(plan, runs, problems, force)
    finally:
        lines = write_summary(runs, names)
    statuses = [read_status(runs, name).get("status") for name in problems]
    return lines, statuses.count(ERROR)


def list_problems(request: RunRequest, root: Path, most: int = 0) -> list[str]:
    """Returns the names of the problems that `run_configuration` would run. Needs no model. Raises
    InputError."""
    settings = read_settings(request)
    return _problems(settings, source_of(settings, request.config, root), request.config, most)[1]


def _problems(settings: Settings, source: Source, where: Path, most: int) -> tuple[list[str], list[str]]:
    """Returns (all problem names in the data set, the requested problem names)."""
    names = task_names(source)
    problems = selected_problems(settings, names, where)[: most or None]
    if not problems:
        raise InputError("no problem is left", where, "problems that are not in excluded_ids")
    return names, problems


def run_folder(settings: Settings) -> Path:
    """Returns the folder of a run. Its name is `uuid`, or the time and the model if no `uuid` is set."""
    name = settings.get("uuid")
    if name is None:
        model = re.sub(r"[^A-Za-z0-9._-]+", "-", str(settings.get("llm_name") or "no_llm")).strip("-")
        name = f"{time.strftime('%Y%m%d_%H%M%S')}_{model}"
    name = str(name)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name):
        raise InputError(f"uuid {name!r}", expected="letters, digits and . _ -: it names a folder")
    return Path(str(settings.get("output_path") or "exps")).expanduser() / name


def _evaluate(plan: Plan, runs: Path, problems: Sequence[str], force: Force) -> None:
    chosen = set(problems)

    def choose(tasks: Sequence[Task]) -> list[Task]:
        by_name = {task.instance_id: task for task in tasks if task.instance_id in chosen}
        return [by_name[name] for name in problems]

    def folders(folder: Path, meta: Record, ended: Callable[[], object]) -> AttemptFolders:
        return DebugGymFolders(folder, meta, ended, runs, int(meta["step_limit"]))

    told = evaluate(plan, choose, redo=force is Force.ALL, written=folders)
    for place, why in told["refused_rows"].items():
        if place in chosen:
            write_status(runs, place, ERROR)
            write_bytes(runs / place / "debug_gym.log", f"{place}: error, cannot be used: {why}\n".encode())


def _prepare(plan: Plan, runs: Path, problems: Sequence[str], excluded: Sequence[str], force: Force) -> None:
    """Writes the initial status of each problem. Deletes the results of problems that are run again. Raises
    InputError."""
    if force is not Force.ALL:
        check_identity(plan)
    again = set[str]()
    for name in problems:
        before = read_status(runs, name)
        status = str(before.get("status", "")).removeprefix(SKIPPED)
        if force is Force.FAILED and status in (UNRESOLVED, ERROR):
            again.add(name)
        done = status in (RESOLVED, UNRESOLVED) and force is not Force.ALL and name not in again
        if done:
            write_json(runs / name / f"{name}_status.json", before | {"status": SKIPPED + status})
        else:
            write_status(runs, name, "pending")
    if again:
        forget(plan, again)
    for name in excluded:
        write_status(runs, name, ERROR)
        write_bytes(runs / name / "debug_gym.log", f"{name}: error, in excluded_ids, not run\n".encode())


def _public_settings(settings: Settings) -> Record:
    """Returns the settings as experiment_info.jsonl lists them. The settings contain no API keys, which are
    in another file."""
    return {name: value for name, value in settings.items() if "key" not in name.lower()}
