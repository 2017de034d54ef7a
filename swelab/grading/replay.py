"""Reruns a patch by hand in a fresh sandbox of the kind that graded it. Changes no stored file."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from swelab.configs import recipes
from swelab.configs.kinds import CONFIG
from swelab.grading.evidence import RunEvidence
from swelab.grading.grading_stage import Bench
from swelab.grading.harness.grade import fresh_sandbox, limits_of
from swelab.grading.harness.patch_run import LOG_BYTES
from swelab.grading.harness.prediction_files import whole_files
from swelab.grading.harness.reward_run import lay
from swelab.grading.harness.spec import read_spec
from swelab.grading.witness_store import Witnesses
from swelab.records import Fault
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
