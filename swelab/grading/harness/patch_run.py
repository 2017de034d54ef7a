"""Runs one patch in one sandbox: applies it, restores protected files, runs tests, collects evidence."""

import errno
import os
import random
import re
from collections.abc import Iterable
from dataclasses import replace

from swelab.grading.evidence import RunEvidence, ended_run
from swelab.grading.harness import audit, protected
from swelab.grading.harness.empty_history import history_files, history_line
from swelab.grading.harness.guard import Guard, pack_tar, unpack_tar
from swelab.grading.harness.hostile_text import review
from swelab.grading.harness.logs import between
from swelab.grading.harness.mutated_rerun import break_tests
from swelab.grading.harness.observer_record import RECORD_BYTES, collect_observations, read_record
from swelab.grading.harness.prediction_files import protected_gold, whole_files
from swelab.grading.harness.spec import RunSpec
from swelab.outcomes import GradeEnd
from swelab.records import InputError, Record
from swelab.records.patch_names import PatchRefused
from swelab.records.patch_reader import touched_paths
from swelab.records.patches import Patch
from swelab.sandbox import WORKDIR, Limits, PathRefused, Sandbox, SandboxError
from swelab.sandbox.resource_limits import INODE_BYTES
from swelab.tasks.patch_application import encode_patch

LOG_BYTES = 8 << 20
"""Bytes of a test command's output that are kept, half from its start and half from its end."""

FILE_BYTES = 64 << 20
"""Maximum number of bytes to read of one file in the sandbox."""

MOST_WATCHED = 40
"""Maximum number of tests around which the runner is inspected, since an inspection takes milliseconds."""

PREPARE_SECONDS = 300
_EXCUSES = {
    "object.__setattr__": "__code__",
    "object.__getattr__": "(__code__|tb_frame|gi_frame|cr_frame|ag_frame)",
    "sys._getframe": "(_getframe|currentframe|inspect|walk_stack)",
    "exec": "(exec|eval|compile)",  # exec also raises compile's event, and compile exec's
    "compile": "(exec|eval|compile)",
    "subprocess.Popen": "subprocess",
    "mmap.__new__": "mmap",
    "imports_unread_code": "(importlib|__import__|exec|runpy|loader|meta_path)",
    "runs_as_code": "(?!)",
    "writes_bytecode": "(py_compile|pyc|importlib)",
    "reads_tests": "(open|inspect|linecache|traceback|tokenize|getsource|read_text|read_bytes)",
}
"""Maps an event to a pattern. If the unpatched file or the gold patch matches the pattern, the event is not
reported. For other events the pattern is the event's name."""

INTERRUPTING = (
    " sys.settrace",
    " sys.setprofile",
    " sys.addaudithook",
    " sys.monitoring.register_callback",
    " ctypes.dlopen",
    " ctypes.dlsym",
    " ctypes.addressof",
)
"""Ends of reports on powers by which code can raise an error anywhere, also in the guard."""

TASK_FAULTS = {
    90: "the checkout cannot be set up",
    92: "protected files cannot be set aside",
    93: "the gold patch does not apply",
}


class PatchRun:
    """A patch in a fresh sandbox of its task, for one run. checks: see `grade.CHECKS`. spoil: whether to run
    only the tests to repair, changed so that honest code fails them."""

    def __init__(
        self,
        spec: RunSpec,
        patch: Patch,
        sandbox: Sandbox,
        limits: Limits,
        checks: frozenset[str],
        spoil: bool = False,
    ):
        self.spec, self.patch, self.sandbox, self.limits = spec, patch, sandbox, limits
        self.checks, self.spoil = checks, spoil
        self.spoiled_tests: list[str] = []
        self.removed: list[str] = []
        """Paths to remove before protected files are restored. Set when the patch is applied."""
        self.guard = Guard(root=WORKDIR)

    @property
    def _guarded(self) -> bool:
        return self.spec.by_pytest and "guard" in self.checks

    def evidence(self) -> RunEvidence:
        """Runs the tests and returns the evidence. Raises InputError (unusable task), SandboxError,
        OSError."""
        tests = self._break_tests() if self.spoil else {}
        applied, files = self._prepare()
        if applied:
            return applied
        before, gone = _texts(files["before.tar"]), set(self.removed)
        named = set(self.patch.paths)
        fresh = protected.fresh_python(files["fresh"])
        changed = [path for path in fresh if path not in gone and not self.spec.protects(path)]
        if unnamed := [path for path in changed if path not in named]:
            return ended_run(GradeEnd.TAMPERED, f"the patch changes {unnamed[0]} without naming it")
        after = _texts(files["after.tar"])
        texts = [(path, after.get(path, ""), before.get(path, "")) for path in changed]
        found = review(texts, self.spec.gold if "audit" in self.checks else None)
        found["dynamic"] += audit.binaries(self.patch)
        self.guard.new = protected.new_modules(changed, files["tops"], files["imported"])
        self.guard.data = self._data_files(changed)
        run = RunEvidence.of(found | self._run(changed, tests))
        if (seen := run.observed) and "powers" in seen:
            seen["powers"] = [power for power in seen.powers if not self._is_excused(power, before)]
        return run

    def _data_files(self, changed: list[str]) -> list[str]:
        """Returns the files that the patch brings and the gold patch does not, besides audited Python
        files."""
        paths = [change.path for change in self.patch.changes if change.kind != "deleted"]
        return sorted({*paths} - {*changed} - {*touched_paths(self.spec.gold)})

    def _is_excused(self, power: str, before: dict[str, str]) -> bool:
        """Returns whether a reserved power already occurs in the unpatched file or the gold patch."""
        path, _, event = power.rpartition(" ")
        word = _EXCUSES.get(event, re.escape(event.rpartition(".")[2]))
        return bool(re.search(rf"\b{word}\b", before.get(path, "") + self.spec.gold))

    def _break_tests(self) -> dict[str, str]:
        """Returns the texts of test files with the repaired tests spoiled, by path. Sets
        `self.spoiled_tests`."""
        if self.spec.setup:
            self._shell("\n".join(self.spec.setup))  # checks out the task's own commit
        names: dict[str, list[tuple[str, ...]]] = {}
        for test in self.spec.fail_to_pass:
            path, *rest = test.partition("[")[0].split("::")
            if tuple(rest) not in names.setdefault(path, []):
                names[path].append(tuple(rest))
        files, done = {}, set()
        for path, source in self._tests(names).items():
            text, spoilt = break_tests(source, names[path], self.guard.seed)
            done |= {"::".join((path, *name)) for name in spoilt}
            if spoilt:
                files[path] = text
        self.spoiled_tests = [test for test in self.spec.fail_to_pass if test.partition("[")[0] in done]
        return files

    def _tests(self, paths: Iterable[str]) -> dict[str, str]:
        """Returns the texts of test files as they are when the tests run, by path; "" for a missing file."""
        if not self.spec.tests_diff:
            return self._read(paths)
        name = f"{self.guard.prepared}.tests"
        self.sandbox.put(name, encode_patch(self.spec.tests_diff))
        applied = self._shell(f"git apply --whitespace=nowarn {name}")
        texts = self._read(paths)
        if applied:
            self._shell(f"git apply -R --whitespace=nowarn {name}")
        return texts

    def _read(self, paths: Iterable[str]) -> dict[str, str]:
        texts = {}
        for path in paths:
            try:
                texts[path] = self.sandbox.get(path).decode("utf-8", "replace")
            except (FileNotFoundError, PathRefused):
                texts[path] = ""
        return texts

    def _shell(self, command: str) -> bool:
        return self.sandbox.exec(command, limits=self._bounds(PREPARE_SECONDS, 1 << 16)).returncode == 0

    def applying(self, folder: str, listed: bool = True) -> dict[str, bytes]:
        """Returns the files with which `folder` applies the patch.

        Raises PatchRefused, SandboxError. Raises InputError if the tests' command hides its PYTHONPATH.
        """
        spec = self.spec
        imported = spec.import_folders if self._guarded else []
        gold = protected_gold(spec)
        how = ("apply -R" if spec.gold_reversed else "apply") if gold else ""
        prepare = protected.prepare_script(folder, spec.test_paths, spec.setup, how, listed, imported)
        patch = whole_files(spec, self.patch, self.sandbox)
        files = {"prepare.sh": prepare.encode(), "patch.diff": encode_patch(patch.text)}
        files["touched"] = b"".join(b"./" + os.fsencode(path) + b"\0" for path in self.patch.paths)
        return files | ({"gold.diff": encode_patch(gold)} if gold else {})

    def _prepare(self) -> tuple[RunEvidence | None, dict[str, bytes]]:
        """Sets protected files aside and applies the patch. Returns (None, files that the script wrote), or
        (how the run ended, {}) if the patch cannot be applied."""
        spec, folder = self.spec, self.guard.prepared
        try:
            files = self.applying(folder)
        except PatchRefused as refusal:
            return ended_run("not_applied", str(refusal)), {}
        self.sandbox.put(f"{folder}/in.tar", pack_tar(files))
        result = self.sandbox.exec(
            f"tar -xf {folder}/in.tar -C {folder} && . {folder}/prepare.sh 2>{folder}/log",
            limits=self._bounds(PREPARE_SECONDS, FILE_BYTES),
        )
        if result.returncode == 91:
            return ended_run("not_applied", "no way of applying it succeeded"), {}
        if result.returncode == 94:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
        if result.returncode in TASK_FAULTS:
            raise InputError(TASK_FAULTS[result.returncode], spec.instance_id, "a task that can be set up")
        if result.returncode:
            why = result.limit or f"exit code {result.returncode}"
            return ended_run(GradeEnd.UNRESOLVED, f"the patch cannot be applied ({why})"), {}
        if result.dropped_bytes:
            return ended_run(GradeEnd.UNRESOLVED, "what the patch changed is too much to be read"), {}
        files = unpack_tar(result.output)
        fresh, kept, tops, imported = (files[name] for name in ("fresh", "protected", "tops", "imported"))
        self.removed = protected.to_remove(fresh, kept, tops, spec.test_paths, imported)
        return None, files

    def apply(self) -> RunEvidence | None:
        """Applies the patch and sets `removed`. Returns how the run ended if the patch cannot be applied.
        Raises InputError (unusable task), SandboxError, OSError."""
        return self._prepare()[0]

    def _no_room(self) -> RunEvidence:
        """Returns how a run ended whose disk is full. Raises OSError if other programs filled the disk."""
        if not self.fills():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.guard.folder)
        return ended_run(GradeEnd.UNRESOLVED, "the patch leaves no room for the tests to run")

    def fills(self) -> bool:
        """Returns whether the disk is full because of the sandbox's own files, and not of other programs on
        the host."""
        count = "du -sx {} --total /testbed /tmp ~ 2>/dev/null | tail -n 1"
        found = [self.sandbox.exec(count.format(what)).output.split() for what in ("-B1", "--inodes")]
        used, inodes = (int(words[0]) if words and words[0].isdigit() else 0 for words in found)
        return 2 * (used + inodes * INODE_BYTES) > self.limits.disk_bytes

    def _bounds(self, seconds: int, output_bytes: int) -> Limits:
        return replace(self.limits, wall_seconds=seconds, cpu_seconds=2 * seconds, output_bytes=output_bytes)

    def _run(self, changed: list[str], tests: dict[str, str]) -> RunEvidence:
        """Restores protected files and runs the tests. They run under guard if pytest runs them."""
        spec, guard, guarded = self.spec, self.guard, self._guarded
        if guarded:
            spec = spec.with_folder_first(guard.folder)
        files = {"remove": b"".join(os.fsencode(path) + b"\0" for path in self.removed)}
        before = history_line(guard.folder)
        text = spec.script_with_history(before)
        files |= {"eval.sh": text.encode(), "test.diff": encode_patch(spec.test_patch)}
        files |= history_files(guard.root, guard.folder)
        if guarded:
            only = tests if self.spoil else None
            files |= guard.files(changed, self._tests_to_watch(), spec.listed, spec.test_paths, only)
        try:
            self.sandbox.put(f"{guard.folder}/run.tar", pack_tar(files))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            return self._no_room()
        result = self.sandbox.exec(
            guard.command(spec.tested_command(guard.folder, before), guarded),
            limits=self._bounds(spec.seconds, LOG_BYTES + (RECORD_BYTES if guarded else 0)),
        )
        record = read_record(result.output, guard.nonce, guard.key, LOG_BYTES)
        log, code = between(record.log.decode("utf-8", "replace"), guard.nonce)
        if result.returncode == 94 and f">>> {guard.nonce} start".encode() not in result.output:
            return self._no_room()
        if code is None and result.returncode == 92:
            return ended_run(GradeEnd.TAMPERED, "the patch bars the restoration of protected files")
        if result.returncode == 95:
            raise SandboxError("the output of commands cannot be opened anew in the sandbox")
        facts: Record = {"guarded": guarded, "code_is_runners": spec.code_is_runners, "code": code}
        facts |= {"timed_out": result.timed_out, "limit": result.limit, "log": log}
        if not guarded:
            return RunEvidence.of({**facts, "sealed": "unwatched"})
        state = "cut" if record.state == "gap" and result.dropped_bytes else record.state
        if state == "unstarted" and not self._is_unclaimed():
            state = "unended"
        seen = collect_observations(record.observations, self._junit() if state == "whole" else None)
        run = RunEvidence.of({**facts, "sealed": state, "observed": seen})
        return run | guard_fault(run)

    def _junit(self) -> str | None:
        """Returns pytest's JUnit file; "" if it is missing, None if the tests' command names its own file."""
        command = self.spec.eval_script + self.spec.test_cmd
        if "junit" in command or "PYTEST_ADDOPTS" in command:  # these options request our file
            return None
        try:
            return self.sandbox.get(self.guard.junit, FILE_BYTES).decode("utf-8", "replace")
        except (FileNotFoundError, PathRefused):
            return ""

    def _tests_to_watch(self) -> list[str]:
        """Returns the repaired tests around which the runner is inspected: a random choice if there are
        many."""
        tests = list(self.spec.fail_to_pass)
        return random.Random(self.guard.seed).sample(tests, min(len(tests), MOST_WATCHED))

    def _is_unclaimed(self) -> bool:
        """Returns whether no test runner has started. A runner removes the guard's plan at its start."""
        try:
            return bool(self.sandbox.get(f"{self.guard.folder}/plan.json", FILE_BYTES))
        except (FileNotFoundError, PathRefused):
            return False


def guard_fault(run: RunEvidence) -> Record:
    """Returns the fields of the evidence that change if the guard itself failed, otherwise {}. "guard_fault"
    is the first error. All tracebacks are appended to "log". The run is unresolved if tested code may have
    caused the error, otherwise it is an infra_error."""
    if not run.observed or not run.observed.faults:
        return {}
    faults = run.observed.faults
    error = faults[0]["error"]
    text = "\n".join(each["traceback"] for each in faults)
    changed: Record = {"guard_fault": error, "log": f"{run.log}\nThe guard itself failed:\n{text}"}
    patched = next((each["patched"] for each in faults if each["patched"]), "")
    patched = patched or next((each for each in run.observed.powers if each.endswith(INTERRUPTING)), "")
    if patched:
        reason = f"the guard failed while {patched} was at work: {error}"
        return changed | {"ended": GradeEnd.UNRESOLVED, "reason": reason}
    return changed | {"ended": GradeEnd.INFRA_ERROR, "reason": f"the guard itself failed: {error}"}


def _texts(tar: bytes) -> dict[str, str]:
    """Returns the texts of the Python files in a tar, by path."""
    return {
        path.removeprefix("./"): data.decode("utf-8", "replace")
        for path, data in unpack_tar(tar).items()
        if path.endswith(".py")
    }
