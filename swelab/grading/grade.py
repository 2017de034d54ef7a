"""A prediction's verdict: patch -> fresh sandbox -> tests -> per-test grade.

The grader sees the task and the patch, nothing else of the trajectory. The patch goes onto a clean
checkout in a sandbox of its own; the task's test files are restored from the repository before the
tests run, so that a prediction does not bring its own.
"""

import hashlib
import secrets
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from swelab.grading.logs import DEFAULT_PARSER, between, judge, statuses, wrap
from swelab.records import InputError, Record, digest
from swelab.sandbox import Backend, Limits, PathRefused, Sandbox, SandboxError
from swelab.tasks.checkout import RepoStore, encode_patch

VERSION = 1
"""Part of every grade's key: raised when the same patch could get another verdict."""

APPLY = (
    "git apply --verbose --whitespace=nowarn /tmp/patch.diff",
    "git apply --verbose --whitespace=nowarn --3way /tmp/patch.diff",
    "patch --batch --forward --fuzz=5 -p1 -i /tmp/patch.diff",
)
RESET = "git reset -q --hard && git clean -qfdx"
LOG_BYTES = 16 << 20
DEFAULT_TIMEOUT = 600


def grade_key(task: Record, patch: str, outcome: str, repo_digest: str) -> str:
    """Hash of all that a grade depends on: task, patch, repository archive, grader."""
    return digest([VERSION, task, patch, outcome, repo_digest])


def grade(task: Record, patch: str | None, store: RepoStore, backend: Backend, limits: Limits) -> Record:
    """Grades one patch: a record with status, resolved, tests_status, seconds and a reason.

    Statuses: resolved, unresolved, empty_patch, apply_failed, timeout, infra_error (the sandbox was
    lost; nothing is said about the patch). Raises InputError when the task itself is unusable.
    """
    start = time.monotonic()
    try:
        status, reason, tests = _verdict(task, patch or "", store, backend, limits)
    except SandboxError as error:
        status, reason, tests = "infra_error", str(error), None
    record: Record = {
        "instance_id": task["instance_id"],
        "status": status,
        "resolved": status == "resolved",
        "reason": reason,
        "patch_sha256": hashlib.sha256(encode_patch(patch or "")).hexdigest(),
        "seconds": round(time.monotonic() - start, 3),
    }
    return record | ({"tests_status": tests} if tests else {})


def _verdict(task: Record, patch: str, store: RepoStore, backend: Backend, limits: Limits):
    if not patch.strip():
        return "empty_patch", "", None
    with tempfile.TemporaryDirectory(dir=store.cache_dir) as scratch:
        tree = Path(scratch) / "tree"
        store.checkout(task, tree)
        with backend.start(tree, limits=limits) as sandbox:
            if not _apply(sandbox, patch):
                return "apply_failed", "no way of applying it succeeded", None
            try:
                _restore_tests(sandbox, task, store.clean_tree(task))
            except PathRefused as error:
                return "unresolved", f"the patch bars a test file: {error}", None
            return _run_tests(sandbox, task, limits)


def _apply(sandbox: Sandbox, patch: str) -> bool:
    sandbox.put("/tmp/patch.diff", encode_patch(patch))
    for command in APPLY:
        if sandbox.exec(command).returncode == 0:
            return True
        sandbox.exec(RESET)
    return False


def _restore_tests(sandbox: Sandbox, task: Record, clean: Path) -> None:
    for name in task.get("test_files", []):
        source = (clean / name).resolve()
        if not source.is_relative_to(clean.resolve()) or not source.is_file():
            raise InputError(f"test file {name} is not in the repository", task["instance_id"])
        sandbox.put(name, source.read_bytes())


def _run_tests(sandbox: Sandbox, task: Record, limits: Limits):
    nonce = secrets.token_hex(8)
    seconds = task.get("test_timeout", DEFAULT_TIMEOUT)
    bounds = replace(limits, wall_seconds=seconds, cpu_seconds=2 * seconds, output_bytes=LOG_BYTES)
    result = sandbox.exec(wrap(task["test_cmd"], nonce), limits=bounds)
    if result.timed_out:
        return "timeout", f"the tests ran longer than {seconds} s", None
    log, code = between(result.output.decode("utf-8", "replace"), nonce)
    if code is None:
        return "unresolved", f"the tests did not come to an end ({result.limit or 'exit'})", None
    status = statuses(log, task.get("log_parser", DEFAULT_PARSER))
    tests = judge(task, status)
    missed = sum(len(group["failure"]) for group in tests.values())
    if missed:
        return "unresolved", f"{missed} tests do not pass", tests
    if code and not {"FAILED", "ERROR"} & set(status.values()):
        return "unresolved", f"the tests exit with {code} but the log tells of no failure", tests
    return "resolved", "", tests
