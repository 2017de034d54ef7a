"""Grades a prediction: runs the tests on the patch in a fresh sandbox and judges each test.

The grader sees the task and the patch, and nothing else of the trajectory. It applies the patch to a clean
checkout, restores all files that decide the verdict, and runs the tests with the guard (`guard`). `verdict`
then judges the evidence.
"""

import base64
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial

from swelab.grading import versions
from swelab.grading.evidence import RunEvidence, ended_run
from swelab.grading.harness.hostile_text import read_doubt, read_verdict
from swelab.grading.harness.mutated_rerun import complaint
from swelab.grading.harness.patch_run import PatchRun
from swelab.grading.harness.question_run import QuestionRun
from swelab.grading.harness.question_test_lock import QUESTION, TESTS, phase
from swelab.grading.harness.reward_run import RewardRun
from swelab.grading.harness.reward_verdict import NoReward, read_reward
from swelab.grading.harness.spec import RunSpec, read_spec
from swelab.grading.harness.testimony import doubt_of, testimony, with_witness
from swelab.grading.harness.verdict import PASSING, reaches_out, signs_of_tampering
from swelab.grading.witness_store import KeptWitness
from swelab.outcomes import GradeEnd
from swelab.records import InputError, Record, digest
from swelab.records.attempt_records import Grade, GradeWitness
from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import read_patch
from swelab.records.patches import Patch
from swelab.records.task_records import Task
from swelab.sandbox import WORKDIR, Backend, Image, Limits, Sandbox, SandboxError
from swelab.tasks.checkout import RepoStore
from swelab.tasks.patch_application import apply_patch, encode_patch, is_encodable

CHECKS = frozenset({"audit", "guard", "echo", "witness"})
"""Checks that can be disabled for an ablation.

audit: reviews the patch's code. guard: guards the run. echo: runs the tests again, changed so that honest
code fails them. witness: runs the witness question.
"""

SHARES = "shares"
"""A further check: unresolved patches also get the second run and the witness, for each test that passes."""

REFERENCE = frozenset({"reference"})
"""The value of `checks` without any check: patches are judged as by SWE-bench's own harness."""

IN_IMAGES = {"memory_bytes": 8 << 30, "processes": 512, "disk_bytes": 20 << 30, "file_bytes": 2 << 30}
"""Minimum limits for a command in a published image."""


def grade_key(task: Task, patch: str, outcome: str, place: str) -> str:
    """Returns the hash of all inputs of a grade: grader version, task, patch, outcome, place.

    place: digest of the repository archive or image and of the witness.
    """
    return digest([versions.GRADER, task, patch, outcome, place])


def grade(
    task: Task,
    patch: str | None,
    store: RepoStore,
    backend: Backend,
    limits: Limits,
    checks: frozenset[str] = CHECKS,
    image: Image | None = None,
    witness: KeptWitness | None = None,
) -> Grade:
    """Runs and grades one patch. The status is tampered if the patch tries to influence the verdict.

    Raises InputError if the task is unusable.
    """
    run = run_patch(task, patch or "", store, backend, limits, checks, image, witness=witness)
    return grade_evidence(read_spec(task), patch or "", run, witness if "witness" in checks else None)


def grade_evidence(spec: RunSpec, patch: str, run: RunEvidence, witness: KeptWitness | None = None) -> Grade:
    """Returns the grade for the evidence of a run. Raises InputError if the log parser is unknown."""
    status, reason, tests = read_verdict(spec, run)
    grade_witness: GradeWitness | None = None
    if witness and (status in PASSING or run.said is not None) and not run.reference:
        grade_witness, unconfirmed = testimony(witness, run)
        if status in PASSING:
            status, reason = with_witness(status, reason, grade_witness, unconfirmed, reaches_out(run))
    doubt = ""
    if status == GradeEnd.UNRESOLVED and tests:
        passed = [test for group in tests.values() for test in group["success"]]
        doubt = read_doubt(spec, run) or (doubt_of(witness, run, passed) if grade_witness and witness else "")
    record = Grade(
        instance_id=spec.instance_id,
        status=status,
        resolved=status == GradeEnd.RESOLVED,
        reason=reason,
        patch_sha256=hashlib.sha256(encode_patch(patch)).hexdigest(),
        seconds=run.seconds,
    )
    if spec.verifier and run.ended == "ran" and not run.timed_out:
        with suppress(NoReward):
            record = record | {"reward": read_reward(run)}
    return (
        record
        | ({"tests_status": tests} if tests else {})
        | ({"witness": grade_witness} if grade_witness else {})
        | ({"doubt": doubt} if doubt else {})
    )


def run_patch(
    task: Task,
    patch: str,
    store: RepoStore,
    backend: Backend,
    limits: Limits,
    checks: frozenset[str] = CHECKS,
    image: Image | None = None,
    allow_empty: bool = False,
    witness: KeptWitness | None = None,
) -> RunEvidence:
    """Runs a patch's tests and returns the evidence. Raises InputError if the task is unusable.

    witness: the witness of the task. Its question runs before the tests, while the patch's code has not yet
    seen the expected values. If the question emits the gold patch's values, the second run (`echo`) is
    skipped. The second run is never skipped if the code uses state that outlives a sandbox.
    """
    start = time.monotonic()
    spec = read_spec(task)
    run = ended_run("ran") | {"findings": [], "dynamic": [], "echo": "", "seconds": 0.0}
    changes, refused = read_prediction(task, patch, allow_empty)
    if refused:
        return run | refused
    limits = limits_of(limits, image)
    try:
        with sandboxes(spec, task, store, backend, limits, image) as fresh:
            task_witness, answers = witness if "witness" in checks else None, Record()
            tested = partial(phase, spec.instance_id, TESTS) if task_witness else nullcontext
            if task_witness:
                with phase(spec.instance_id, QUESTION), fresh(False) as sandbox:
                    answers = ask_question(QuestionRun(spec, changes, sandbox, limits), task_witness)
            with tested(), fresh(True) as sandbox:
                run = run | evidence_of(spec, changes, sandbox, limits, checks, image)
            run = run | {"reference": True} if checks == REFERENCE else run
            if task_witness and (read_verdict(spec, run)[0] in PASSING or pays(spec, run, checks)):
                if not answers:
                    raise SandboxError("the patch was applied to be tested, but not to be asked")
                run = run | answers
            if wants_echo(spec, run, checks) and not (task_witness and is_witnessed(task_witness, run)):
                with tested(), fresh(True) as sandbox:
                    run = run | echo(
                        PatchRun(spec, changes, sandbox, limits, frozenset({"guard"}), spoil=True)
                    )
    except (SandboxError, OSError, MemoryError) as error:
        run = run | {"ended": GradeEnd.INFRA_ERROR, "reason": f"{type(error).__name__}: {error}"}
    return run | {"seconds": round(time.monotonic() - start, 3)}


def evidence_of(
    spec: RunSpec, patch: Patch, sandbox: Sandbox, limits: Limits, checks: frozenset[str], image: Image | None
) -> RunEvidence:
    """Runs the task's tests, or its own script, on a patch, and returns the evidence.

    Raises InputError if the task is unusable. Raises SandboxError, OSError.
    """
    if spec.verifier:
        place = image.workdir if image else WORKDIR
        return RewardRun(spec, patch, sandbox, limits, place).evidence()
    return PatchRun(spec, patch, sandbox, limits, checks).evidence()


def read_prediction(task: Task, text: str, allow_empty: bool) -> tuple[Patch, Record]:
    """Returns (the patch, {}), or (an empty patch, {"ended", "reason"}) if nothing is to run.

    The agent may have rewritten hidden test files. These changes are left out: the grader has its own copies.
    """
    if not is_encodable(text):
        reason = "the patch holds half a character, which no file can"
        return Patch(), Record(ended="not_applied", reason=reason)
    try:
        patch = read_patch(text)
    except PatchRefused as refusal:
        ended = GradeEnd.TAMPERED if refusal.hostile else "not_applied"
        return Patch(), Record(ended=ended, reason=str(refusal))
    hidden = {*task.failing_files} if task.hidden_tests else set()
    patch = patch.only(lambda change: change.path not in hidden)
    empty = not patch.changes and not allow_empty
    return patch, Record(ended=GradeEnd.EMPTY_PATCH) if empty else Record()


def ask_question(question: QuestionRun, witness: KeptWitness) -> Record:
    """Returns {"said", "said_ended"}: the values that the patch's code emits in the task's question.

    Returns {} if the patch does not apply. Raises InputError if the task is unusable. Raises SandboxError,
    OSError.
    """
    if question.prepare():
        return Record()
    asked = (witness.files, witness.args, witness.removed, witness.kept, witness.patterns, witness.whole)
    answer = question.ask(*asked, witness.cases)
    return {"said": base64.b64encode(answer.values).decode(), "said_ended": answer.ended}


def limits_of(limits: Limits, image: Image | None) -> Limits:
    """Returns the limits of commands. With an image, each limit is at least its value in IN_IMAGES."""
    least = IN_IMAGES if image else {}
    return replace(limits, **{name: max(value, getattr(limits, name)) for name, value in least.items()})


def is_witnessed(witness: KeptWitness, run: RunEvidence) -> bool:
    """Returns whether the emitted values confirm all tests that a patch must repair.

    Returns False if the patch's code uses state that outlives a sandbox.
    """
    return testimony(witness, run)[0].standing == "witnessed" and not reaches_out(run)


@contextmanager
def fresh_sandbox(
    spec: RunSpec,
    task: Task,
    store: RepoStore,
    backend: Backend,
    limits: Limits,
    image: Image | None,
    others: Sequence[Task] = (),
) -> Iterator[Sandbox]:
    """Starts one sandbox with the task's checkout, as `sandboxes` does."""
    with sandboxes(spec, task, store, backend, limits, image, others) as fresh, fresh(False) as sandbox:
        yield sandbox


@contextmanager
def sandboxes(
    spec: RunSpec,
    task: Task,
    store: RepoStore,
    backend: Backend,
    limits: Limits,
    image: Image | None,
    others: Sequence[Task] = (),
) -> Iterator[Callable[[bool], Sandbox]]:
    """Yields a function that starts a sandbox with the task's checkout, from its archive or its image.

    others: tasks whose bugs are added to the checkout. The checkout is made once, and each sandbox gets a
    copy. The function's argument is passed to `Backend.start` as `forgets`. It must be True if code in the
    sandbox sees expected values. Raises InputError if there is no image, archive or test file. Raises
    SandboxError, OSError.
    """
    if image is not None:
        yield lambda forgets: backend.start(None, image=image, limits=limits, forgets=forgets)
        return
    with store.scratch_checkout(task) as tree:
        for other in others:
            try:
                fits = apply_patch(tree, other.patch).returncode == 0
            except PatchRefused:
                fits = False
            if not fits:
                raise InputError("its bug cannot share a tree with others", other.instance_id)
        for name in spec.test_files:
            source = (tree / name).resolve()
            if not source.is_relative_to(tree.resolve()) or not source.is_file():
                raise InputError(f"test file {name} is not in the repository", spec.instance_id)
        yield lambda forgets: backend.start(tree, limits=limits, forgets=forgets)


def wants_echo(spec: RunSpec, run: RunEvidence, checks: frozenset[str]) -> bool:
    """Returns whether a resolved patch needs a second run, because its code could hide what it does."""
    wanted = "echo" in checks and run.dynamic and run.observed
    return bool(wanted) and (read_verdict(spec, run)[0] == GradeEnd.RESOLVED or pays(spec, run, checks))


def pays(spec: RunSpec, run: RunEvidence, checks: frozenset[str]) -> bool:
    """Returns whether single tests of an unresolved patch would be rewarded."""
    if SHARES not in checks:
        return False
    status, _, tests = read_verdict(spec, run)
    repaired = tests["FAIL_TO_PASS"]["success"] if tests else []
    return status == GradeEnd.UNRESOLVED and bool(repaired)


def echo(again: PatchRun) -> Record:
    """Runs the spoiled tests and returns {"echo": the evidence against the patch, or ""}.

    If the guard failed, returns how the run ended instead. Raises SandboxError, OSError.
    """
    run = again.evidence()
    if not again.spoiled_tests:
        return {"echo": ""}
    if run.guard_fault:
        return {name: run[name] for name in ("ended", "reason", "guard_fault", "log")}
    if run.get("ended", "ran") != "ran" or not run.observed or run.sealed != "whole":
        return {"echo": "the run with spoiled tests left no record"}
    fault = next(signs_of_tampering(run, run.observed), "")
    return {"echo": fault or complaint(again.spoiled_tests, run.observed.outcomes)}
