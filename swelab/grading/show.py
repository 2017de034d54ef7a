"""Implements `scripts.show`: selects one attempt and prints it, or reruns it."""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import CONFIG
from swelab.grading import kept_runs
from swelab.grading.attempt_text import describe_attempt, listing, plain
from swelab.grading.evidence import RunEvidence
from swelab.grading.grading_stage import OWN_EVAL, Bench
from swelab.grading.harness.grade import fresh_sandbox, limits_of
from swelab.grading.harness.patch_run import LOG_BYTES
from swelab.grading.harness.prediction_files import whole_files
from swelab.grading.harness.reward_run import lay
from swelab.grading.harness.spec import read_spec
from swelab.grading.kept_runs import KeptAttempt
from swelab.grading.run_cache import Archive
from swelab.grading.witness_store import Witnesses
from swelab.outcomes import GradeEnd
from swelab.records import Fault, InputError
from swelab.records.attempt_records import Grade
from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import read_patch
from swelab.records.task_records import Task
from swelab.sandbox import ExecResult, Limits, Sandbox, open_backend
from swelab.tasks.checkout import RepoStore, scratch_folder
from swelab.tasks.patch_application import encode_patch
from swelab.tasks.task_images import task_images

_PATCH, _TESTS = "/tmp/swelab.patch", "/tmp/swelab.tests"


@contextmanager
def open_bench(task: Task, repos: Path, images: Path, witness: Path | None = None) -> Iterator[Bench]:
    """Opens a bench for one task, with the sandbox backend that configs/config.yaml names.

    witness: the witness file of the task's subset, if there is one. Raises InputError if there is no archive
    or image, SandboxError if there is no such backend.
    """
    settings = recipes.load(CONFIG, Path("configs/config.yaml"))
    for name in ("backend", "toolbox"):
        os.environ.setdefault(f"SWELAB_{name.upper()}", getattr(settings, name))
    known = task_images([task], images if images.is_file() else None, refuse_leaks=False)
    with scratch_folder() as scratch:
        judges = Witnesses(witness if witness and witness.is_file() else None)
        yield Bench(RepoStore(repos, scratch), open_backend(), known, witnesses=judges)


def run_again(task: Task, patch: str, bench: Bench) -> tuple[Grade, RunEvidence]:
    """Runs a patch again and returns (grade, evidence). The tests run even if the patch is empty."""
    run = bench.run_anew(task, patch, allow_empty=True)
    return bench.grade_of(task, patch, run), run


def run_command(task: Task, patch: str, bench: Bench, command: str) -> ExecResult:
    """Runs a command on the patched code, with the task's own tests in place.

    Raises Fault if the patch does not apply. Raises SandboxError, OSError.
    """
    spec, image = read_spec(task), bench.images.get(task.instance_id)
    limits = limits_of(Limits(), image)
    bounds = replace(limits, wall_seconds=spec.seconds, cpu_seconds=2 * spec.seconds, output_bytes=LOG_BYTES)
    assert bench.backend is not None
    with fresh_sandbox(spec, task, bench.store, bench.backend, limits, image) as sandbox:
        if spec.verifier:
            lay(sandbox, "tests", spec.verifier, spec.instance_id)
        if spec.setup:
            sandbox.exec("\n".join(spec.setup), limits=bounds)
        try:
            _apply(sandbox, _PATCH, whole_files(spec, read_patch(patch), sandbox).text)
        except PatchRefused as refusal:
            raise Fault(f"the patch does not apply: {refusal}") from None
        _apply(sandbox, _TESTS, spec.tests_diff)
        return sandbox.exec(command, limits=bounds)


def _apply(sandbox: Sandbox, name: str, patch: str) -> None:
    if not patch.strip():
        return
    sandbox.put(name, encode_patch(patch))
    ways = (f"git apply --whitespace=nowarn {name}", f"patch --batch --forward --fuzz=5 -p1 -i {name}")
    done = sandbox.exec(" || ".join(ways))
    if done.returncode:
        raise Fault(f"the patch does not apply: {done.output.decode('utf-8', 'replace')[:400]}")


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
