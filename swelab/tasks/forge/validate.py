"""Decides whether a candidate is a usable bug, with the repository's own tests in fresh sandboxes.

Verdicts are journalled under the hash of all their inputs. So a killed run resumes, and a larger subset
validates only new candidates.
"""

import io
import sys
import tarfile
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from swelab.configs.kinds.repo import GitRepo, PypiRepo
from swelab.files.text_lines import lines_of, without_terminal_codes
from swelab.jobs.journal import Journal
from swelab.records import InputError, Record, digest, shorten, typed
from swelab.sandbox import Backend, Limits, Sandbox, SandboxLost
from swelab.tasks.forge.candidates import Candidate, rejects
from swelab.tasks.forge.missing_module import advice
from swelab.tasks.forge.source import Source
from swelab.tasks.forge.whole_ids import is_whole, with_whole_ids

VERSION = 2
"""Part of every journal key. Increase this number if the same candidate could get another verdict."""

LOG_BYTES = 16 << 20
CLEAN_SECONDS = 600
SLOWER = 10
SPARE_SECONDS = 5
"""A bug's run may take `SLOWER` times the wall time of the clean run, plus `SPARE_SECONDS`."""
ATTEMPTS = 3
WIDE = {"COLUMNS": "1000"}
"""Environment with which pytest shows the whole reason of a failure.
Otherwise, pytest truncates the reason to the terminal's width."""
COMPILING = {"PYTHONDONTWRITEBYTECODE": ""}
PACK = "find . -name '*-pytest-*.pyc' -print0 2>/dev/null | tar -c --null -T - 2>/dev/null"
"""Bash that packs the bytecode of test files, in which pytest has rewritten the assertions.

With it, later runs need not rewrite the files, which takes as long as the tests. Other bytecode is excluded.
Otherwise, if a file is mutated within the same second, Python would load the bytecode of the old file.
"""

Statuses = Callable[[str, str], dict[str, str]]
"""Maps (log, parser name) to the status of each test id. See `swelab.grading.harness.logs.statuses`."""


@dataclass
class Repository:
    """A clean tree, and facts about its tests.

    passed: ids of tests that pass in both runs on the clean code, in the log's order. unstable: number of
    other tests, except tests that are skipped in both runs. If the id of a test is still truncated after
    `with_whole_ids`, the test counts as unstable. seconds: wall time of the slower clean run. compiled:
    output of PACK, or b"".
    """

    name: str
    recipe: PypiRepo | GitRepo
    digest: str
    tree: Path
    sources: dict[str, Source]
    passed: list[str] = field(default_factory=list)
    unstable: int = 0
    seconds: float = 0.0
    compiled: bytes = b""

    def key(self, *parts: object) -> str:
        """Returns a journal key.
        This is a hash of VERSION, the checkout, the test command, the log parser and `parts`."""
        tests = [self.recipe.test_cmd, self.recipe.log_parser]
        return digest([VERSION, self.digest, tests, *parts])


@dataclass(frozen=True)
class Run:
    """One run of a test suite. ended: why the run gives no verdict ("timeout", "limit"), or ""."""

    status: dict[str, str]
    code: int
    ended: str
    seconds: float
    log: str


class Verdict(typed.TypedRecord):
    """The verdict on whether a candidate is a usable bug."""

    reason: str = typed.field("why it is not; empty where it is")
    broken: list[str] = typed.field("ids of the tests that it breaks")
    message: str = typed.field("pytest's reason for the first of them")


class Validator:
    """Gets verdicts on candidates from `workers` sandboxes.
    Only the caller's thread writes to the journal."""

    def __init__(self, backend: Backend, statuses: Statuses, journal: Journal, workers: int):
        self.backend, self.statuses, self.journal = backend, statuses, journal
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="validate")
        self._pending: dict[str, Future[Record]] = {}

    def __enter__(self) -> "Validator":
        return self

    def __exit__(self, *_: object) -> None:
        """Cancels waiting runs and waits for active runs.
        Verdicts that nobody requested are journalled for a later run."""
        self._pool.shutdown(cancel_futures=True)
        for key, future in self._pending.items():
            if not future.cancelled() and not future.exception():
                self.journal.append({"key": key, **future.result()})
        self._pending.clear()

    def baseline(self, repo: Repository) -> None:
        """Runs the tests twice on the clean code. Sets the repository's `passed`, `unstable` and `seconds`.
        Raises InputError if no test passes."""
        key = repo.key("clean")
        if key not in self.journal:
            runs = list(self._pool.map(lambda _: self._run(repo, None, CLEAN_SECONDS, COMPILING), range(2)))
            self.journal.append({"key": key, "repo": repo.name, **_compare_clean(runs)})
        record = self.journal.get(key)
        repo.passed, repo.unstable, repo.seconds = (record[k] for k in ("passed", "unstable", "seconds"))
        if not repo.passed:
            why, command = self._why(repo) or record["tail"], repo.recipe.test_cmd
            expected = advice(why, repo.tree, command) or f"passing tests from: {command}"
            raise InputError(f"no test passes on the clean code: {why}", repo.name, expected)
        told = f"{len(repo.passed)} tests pass on the clean code, {repo.unstable} do not or are unsteady"
        print(f"{repo.name}: {told}; {repo.seconds:.1f} s a run", file=sys.stderr)

    def _why(self, repo: Repository) -> str:
        """Returns pytest's messages on why the tests fail on the clean code."""
        told = repo.recipe.model_copy(
            update={"test_cmd": repo.recipe.test_cmd.replace("--tb=no", "--tb=short")}
        )
        log = self._run(replace(repo, recipe=told), None, CLEAN_SECONDS, WIDE).log
        lines = dict.fromkeys(line[1:].strip() for line in lines_of(log) if line.startswith("E  "))
        return shorten("; ".join(lines), 300)

    def is_known(self, repo: Repository, candidate: Candidate, most: int) -> bool:
        """Returns whether a verdict is in the journal."""
        return self._key(repo, candidate, most) in self.journal

    def expect(self, repo: Repository, candidate: Candidate, most: int) -> None:
        """Starts to compute a verdict that the caller will request soon."""
        key = self._key(repo, candidate, most)
        if key not in self.journal and key not in self._pending:
            self._pending[key] = self._pool.submit(self._judge, repo, candidate, most)

    def verdict(self, repo: Repository, candidate: Candidate, most: int) -> Verdict:
        """Returns the verdict on a candidate that may break at most `most` tests.
        Raises SandboxLost if the sandbox fails repeatedly."""
        self.expect(repo, candidate, most)
        key = self._key(repo, candidate, most)
        if key in self._pending:
            self.journal.append({"key": key, **self._pending.pop(key).result()})
        return Verdict.of(self.journal.get(key))

    def _key(self, repo: Repository, candidate: Candidate, most: int) -> str:
        return repo.key("bug", candidate.patch, most)

    def _judge(self, repo: Repository, candidate: Candidate, most: int) -> Record:
        where = {"repo": repo.name, "function": candidate.function, "op": candidate.op, "bug": candidate.bug}
        return {**where, **self._try(repo, candidate, most)}

    def _try(self, repo: Repository, candidate: Candidate, most: int) -> Verdict:
        source = repo.sources[candidate.path]
        if reason := rejects(source, candidate):
            return Verdict(reason=reason, broken=[], message="")
        content = source.apply(candidate.edits)
        seconds = SLOWER * repo.seconds + SPARE_SECONDS
        first = self._run(repo, (candidate.path, content), seconds)
        if reason := _unusable(first, repo.passed, most):
            return Verdict(reason=reason, broken=[], message="")
        second = self._run(repo, (candidate.path, content), seconds, WIDE)
        broken = _broken_tests(first, repo.passed)
        if second.ended or any(first.status.get(t) != second.status.get(t) for t in repo.passed):
            return Verdict(reason="flaky", broken=[], message="")
        return Verdict(reason="", broken=broken, message=_reason_of(broken[0], second.log))

    def _run(
        self,
        repo: Repository,
        change: tuple[str, bytes] | None,
        seconds: float,
        env: dict[str, str] | None = None,
    ) -> Run:
        limits = Limits(wall_seconds=seconds, cpu_seconds=int(2 * seconds) + 1, output_bytes=LOG_BYTES)
        for attempt in range(ATTEMPTS):
            try:
                with self.backend.start(repo.tree, limits=limits) as sandbox:
                    if change:
                        _spare_rewriting(sandbox, repo.compiled)
                        sandbox.put(*change)
                    result = sandbox.exec(repo.recipe.test_cmd, env=env, limits=limits)
                    if not change:
                        repo.compiled = _plain_tar(sandbox.exec(PACK, limits=limits).output)
                break
            except SandboxLost:
                if attempt + 1 == ATTEMPTS:
                    raise
        log = without_terminal_codes(result.output.decode("utf-8", "replace"))
        status = with_whole_ids(log, self.statuses(log, repo.recipe.log_parser))
        ended = "timeout" if result.timed_out or result.limit == "cpu" else "limit" if result.limit else ""
        return Run(status, result.returncode, ended, result.seconds, log)


def _plain_tar(data: bytes) -> bytes:
    """Returns `data` if it is a tar with at least one member, otherwise b""."""
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            return data if tar.getnames() else b""
    except tarfile.TarError:
        return b""


def _spare_rewriting(sandbox: Sandbox, compiled: bytes) -> None:
    """Unpacks the output of PACK. pytest uses the bytecode of a test file only if the file is unchanged."""
    if compiled:
        sandbox.put("/tmp/compiled.tar", compiled)
        sandbox.exec("tar -xf /tmp/compiled.tar; rm /tmp/compiled.tar")


def _compare_clean(runs: list[Run]) -> Record:
    ids = list(dict.fromkeys(test for run in runs for test in run.status))
    passed = [
        test for test in ids if is_whole(test) and all(run.status.get(test) == "PASSED" for run in runs)
    ]
    skipped = sum(all(run.status.get(test) == "SKIPPED" for run in runs) for test in ids)
    return {
        "passed": passed,
        "unstable": len(ids) - len(passed) - skipped,
        "seconds": round(max(run.seconds for run in runs), 3),
        "tail": " ".join(runs[0].log.split())[-200:],
    }


def _broken_tests(run: Run, passed: list[str]) -> list[str]:
    return [test for test in passed if run.status.get(test) in ("FAILED", "ERROR")]


def _unusable(run: Run, passed: list[str], most: int) -> str:
    """Returns why a bug cannot be a task, judged by its first run, or ""."""
    if run.ended:
        return run.ended
    missing = sum(test not in run.status for test in passed)
    broken = len(_broken_tests(run, passed))
    if missing:
        return "collection_error" if run.code != 1 else "tests_missing"
    if not broken:
        return "survived"
    return "breaks_too_many" if broken > most else ""


def _reason_of(test: str, log: str) -> str:
    """Returns the short reason in pytest's summary for a failed test, or ""."""
    for line in lines_of(log):
        for status in ("FAILED", "ERROR"):
            if line.startswith(f"{status} {test} - "):
                return line.removeprefix(f"{status} {test} - ")
    return ""
