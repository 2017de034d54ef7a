"""Implements `scripts.show`: selects one attempt and prints it, or reruns it."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from swelab.grading import kept_runs
from swelab.grading.attempt_text import describe_attempt, listing, plain
from swelab.grading.grading_stage import OWN_EVAL
from swelab.grading.kept_runs import KeptAttempt
from swelab.grading.replay import open_bench, run_again, run_command
from swelab.grading.run_cache import Archive
from swelab.outcomes import GradeEnd
from swelab.records import InputError
from swelab.records.task_records import Task
from swelab.tasks.patch_application import encode_patch


def show(options: argparse.Namespace) -> int:
    """Prints what the options of `scripts.show` select, and returns the exit code. Raises InputError."""
    name = kept_runs.full_name(options.results, options.tasks, options.instance)
    attempt, *others = _attempts(options, name)
    if others:
        _print(listing(name, [attempt, *others]))
        return 0
    archive = Archive((options.logs or options.results / "progress") / "runs")
    task = kept_runs.task_of(options.results, options.tasks, attempt)
    if options.run is not None:
        kept = archive.look(attempt.run) if attempt.run else None
        patch = kept_runs.patch_of(options.results, attempt, kept)
        return _again(options, attempt, task, patch)
    run = kept_runs.kept_run(archive, attempt)
    if options.raw:
        print(json.dumps({"grade": attempt.row, "run": run}, indent=2))
    elif options.log:
        _print(run.log if run else "")
    else:
        place = str(archive.path(attempt.run)) if run else ""
        bold = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        patch = kept_runs.patch_of(options.results, attempt, run)
        _print(describe_attempt(attempt, task, patch, run, place, bold), steered=bold)
    return 0


def _attempts(options: argparse.Namespace, name: str) -> list[KeptAttempt]:
    """Returns the attempts that match the options. Raises InputError if none matches."""
    matching = list(_matching(options, name))
    if not matching:
        raise InputError("no graded or validated attempt matches", name, "a finished job before")
    given = (("results", Path("results")), ("logs", None), ("tasks", None), ("images", None))
    more = [
        (f"--{flag}", str(getattr(options, flag))) for flag, usual in given if getattr(options, flag) != usual
    ]
    return [replace(each, more=sum(more, ())) for each in matching]


def _matching(options: argparse.Namespace, name: str) -> Iterator[KeptAttempt]:
    results = options.results
    if options.validation:
        wanted = (options.validation, options.number)
        runs = kept_runs.validation_runs(results, name, options.subset)
        yield from (each for each in runs if (each.run_kind, each.number) == wanted)
    elif options.logs:
        yield from kept_runs.by_hand(options.logs, name)
    else:
        grades = kept_runs.grading_runs(results, name, options.policy, options.subset)
        yield from (each for each in grades if options.sample in (None, each.sample))
        if options.policy == "*":
            yield from kept_runs.validation_runs(results, name, options.subset)


def _again(options: argparse.Namespace, attempt: KeptAttempt, task: Task | None, patch: str | None) -> int:
    """Reruns the attempt, or runs a command on its patched code, and prints the result.

    Returns the exit code of the command. Without a command, returns 1 if the verdict differs from the stored
    one, else 0.
    """
    name = attempt.row.instance_id
    if task is None:
        raise InputError("the row of its task is missing", name, f"{attempt.subset}.json, or --tasks")
    if patch is None:
        raise InputError("its patch is missing", name, "the predictions of its policy")
    images = options.images or options.results / "images" / f"{attempt.subset}.json"
    witness = options.results / "tasks" / f"{attempt.subset}.witness.zip"
    with open_bench(task, options.results / "repos", images, witness) as bench:
        if options.run:
            result = run_command(task, patch, bench, options.run)
            _print(result.output.decode("utf-8", "replace"))
            limit = f", limit met: {result.limit}" if result.limit else ""
            print(f"exit code {result.returncode} after {result.seconds:.1f} s{limit}", file=sys.stderr)
            return result.returncode
        grade, run = run_again(task, patch, bench)
    _print(run.log)
    if grade.resolved and attempt.row.reason.endswith(OWN_EVAL):
        grade = grade | {"status": attempt.row.status, "reason": attempt.row.reason}
    before, now = attempt.row.status, grade.status
    print(f"{now}{': ' if grade.reason else ''}{grade.reason}", file=sys.stderr)
    # An empty patch is graded without running its tests, and the validation run on the bug has no grade.
    if before in (now, GradeEnd.EMPTY_PATCH, "ran"):
        return 0
    print(f"the verdict was {before}", file=sys.stderr)
    return 1


def _print(text: str, steered: bool = False) -> None:
    """Prints text that a patch or a model wrote.

    Control characters are removed if the output is a terminal. steered: whether the text is safe, so that its
    control characters are kept.
    """
    if not steered and sys.stdout.isatty():
        text = plain(text)
    sys.stdout.buffer.write(encode_patch(text if text.endswith("\n") else text + "\n"))
    sys.stdout.flush()
