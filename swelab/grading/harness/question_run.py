"""Runs a task's witness question in a sandbox with the patch but no tests, and returns the emitted values.

The values leave through the pipe of the command's output. The test runner's own output is discarded.
"""

import errno
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from swelab.grading.evidence import RunEvidence
from swelab.grading.harness import protected, script
from swelab.grading.harness.guard import CLEARED, Guard, pack_tar
from swelab.grading.harness.patch_run import PREPARE_SECONDS, PatchRun
from swelab.grading.harness.spec import RunSpec
from swelab.records.patches import Patch
from swelab.sandbox import WORKDIR, ExecResult, Limits, Sandbox, SandboxError
from swelab.tasks.patch_application import encode_patch
from swelab.witness import CHANNEL, NEEDS, runtime_files

VALUES_BYTES = 9 << 20
"""Maximum number of bytes of values to keep. Our own runtime emits fewer."""

FULL_BYTES = 7_900_000
"""Number of bytes above which values may be missing, because our runtime emits at most 8 MB."""

_READY = b"ready\n"
"""A line that the command writes before the patch's code can run.

If the line is missing, the patch did not cause the failure.
"""

_NO_ROOM = 94
_NOT_READY = "exit 92"
_NOT_APPLIED = (90, 91, 93)
"""Exit codes of `protected.prepare_script`."""
PATTERNS = ("test_*.py", "*_test.py")


@dataclass(frozen=True)
class Answer:
    """The values that a run of a question emitted. ended: why the run ended early, or ""."""

    values: bytes
    ended: str = ""


class QuestionRun:
    """A sandbox in which a task's tests run as questions. Call `prepare` first, then `ask`.

    The patch is applied and protected files are restored, as in the ordinary run. Only the test files that
    the question needs are present. The .git folder is absent.
    """

    def __init__(
        self,
        spec: RunSpec,
        patch: Patch,
        sandbox: Sandbox,
        limits: Limits,
        removed: Sequence[str] | None = None,
    ):
        """Takes a fresh sandbox of the task.

        removed: files to remove before protected files are restored, or None if they are not known in
        advance. They are known for an empty patch. If they are given, the command of `ask` also applies the
        patch.
        """
        self.spec, self.sandbox, self.limits = spec, sandbox, limits
        self._run = PatchRun(spec, patch, sandbox, limits, frozenset())
        self._removed = removed
        self._before: list[str] = []
        self._parts: dict[str, bytes] = {}

    def prepare(self) -> RunEvidence | None:
        """Applies the patch, unless `removed` was given: then `ask` applies it. Returns how the run ended if
        that failed.

        Raises InputError if the task is unusable. Raises SandboxError, OSError.
        """
        guard, diff = self._run.guard, encode_patch(self.spec.tests_diff)
        place, applied, lines = guard.prepared, None, []
        if self._removed is None:
            applied = self._run.apply()
        else:
            place = f"{guard.folder}/prepared"
            files = self._run.applying(place, listed=False)
            self._parts = {f"prepared/{name}": data for name, data in files.items()}
            lines = [f"( . {place}/prepare.sh ) || exit"]
        removed = self._run.removed if self._removed is None else self._removed
        names = b"".join(os.fsencode(path) + b"\0" for path in removed)
        self._parts |= {"remove": names, "test.diff": diff}
        lines += [f"G={place}", f"R={guard.folder}/remove", protected.RESTORE]
        if diff:
            lines.append(f"git apply --whitespace=nowarn {guard.folder}/test.diff || {_NOT_READY}")
        self._before = [*lines, f"rm -rf $G $R {guard.folder}/test.diff .git"]
        return applied

    def ask(
        self,
        files: Mapping[str, str],
        args: Iterable[str],
        removed: Iterable[str],
        test_files: Iterable[str],
        patterns: Iterable[str] = (),
        whole: bool = False,
        cases: Mapping[str, Sequence[int]] | None = None,
    ) -> Answer:
        """Runs question files and returns the values that they emitted.

        removed: files that must be absent. test_files: test files that must be present, and folders of such
        files, with a trailing slash. patterns: names of test files in addition to pytest's own. cases: see
        `runtime_files`. whole: whether to keep files in the tests' folders that do not match pytest's own
        patterns. In that case the values list the files that the run needed. Raises SandboxError, OSError.
        """
        folder = self._run.guard.folder
        parts = {f"tree/{path}": text.encode() for path, text in files.items()}
        parts |= {f"runtime/{name}": data for name, data in runtime_files(cases).items()}
        parts["removed"] = b"".join(os.fsencode(f"./{path}") + b"\0" for path in removed)
        parts |= _expressions(test_files)
        listed_files = _of_tests([] if whole else patterns, [] if whole else self.spec.test_paths)
        self.sandbox.put(f"{folder}/question.tar", pack_tar({**self._parts, **parts}))
        seconds = self.spec.seconds + (PREPARE_SECONDS if self._before and self._removed is not None else 0)
        bounds = replace(
            self.limits, wall_seconds=seconds, cpu_seconds=2 * seconds, output_bytes=VALUES_BYTES
        )
        done = self.sandbox.exec(self._command(folder, args, listed_files, whole), limits=bounds)
        self._before, self._parts = [], {}
        self._run.guard = Guard(WORKDIR)  # a new folder for each run, since values may contain its name
        if not done.output.startswith(_READY):
            return self._empty_answer(done)
        ended = done.limit or (f"exit code {done.returncode}" if done.returncode not in (0, 1) else "")
        ended = ended or ("output" if len(done.output) > FULL_BYTES else "")
        return Answer(done.output.removeprefix(_READY), ended)

    def _command(self, folder: str, args: Iterable[str], interpreter: tuple[str, str], whole: bool) -> str:
        """Returns Bash that writes only the ready line and the values to standard output."""
        start = script.launcher(self.spec.eval_script or self.spec.test_cmd)
        not_there = f"{{ printf %65536s >{folder}/room || exit {_NO_ROOM}; {_NOT_READY}; }}"
        return "\n".join([
            "exec 3>&1 >/dev/null 2>&1 </dev/null",
            f"unset {' '.join(CLEARED)}",
            f"tar -xf {folder}/question.tar -C {folder} || {not_there}",
            *self._before,
            *(f"find . -path ./{protected.INSTALLED} -prune -o {which} ! -type d -print0 "
              f"| grep -zvEf {folder}/{kept} >>{folder}/removed"
              for which, kept in zip(interpreter, ("needed", "kept"))),
            f"xargs -0 rm -rf -- <{folder}/removed",
            f"find . -path ./{protected.INSTALLED} -prune -o -name __pycache__ -prune -exec rm -rf {{}} +",
            f"tar -c -C {folder}/tree . | tar -x || {not_there}",
            f"rm -rf {folder}/tree {folder}/removed {folder}/kept {folder}/needed {folder}/question.tar",
            f"export PYTHONPATH={folder}/runtime${{PYTHONPATH:+:$PYTHONPATH}} PYTHONHASHSEED=0 {CHANNEL}=3"
            + f" {NEEDS}=1" * whole,
            "echo ready >&3",
            f"{script.with_folder_first(start, f'{folder}/runtime')} -q {shlex.join(args)}",
        ])  # fmt: skip

    def _empty_answer(self, done: ExecResult) -> Answer:
        """Returns an answer without values, for a question that could not be set up.

        Raises OSError if other programs filled the disk. Raises SandboxError if a limit was met.
        """
        if done.returncode == _NO_ROOM:
            if self._run.fills():
                return Answer(b"", "no room: the patch fills the sandbox")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the question's sandbox")
        if self._removed is not None and done.returncode in _NOT_APPLIED:
            why = f"exit code {done.returncode}"
            raise SandboxError(f"the patch was applied to be tested, but not to be asked: {why}")
        if done.limit:
            raise SandboxError(f"the question could not be put into place: limit {done.limit} was met")
        return Answer(b"", f"exit code {done.returncode}, before its tests")


def _of_tests(patterns: Iterable[str], test_files: list[str]) -> tuple[str, str]:
    """Returns two expressions of `find`: one for names of test files, one for files in test folders."""
    names = [
        f"-{'path' if '/' in each else 'name'} {shlex.quote('*/' * ('/' in each) + each)}"
        for each in (*PATTERNS, *patterns)
    ]
    names += [f"-path {shlex.quote('./' + protected.literal(each))}" for each in test_files]
    folders = [
        f"-path {shlex.quote(f'./{protected.literal(each)}/*')}"
        for each in protected.test_folders(test_files)
    ]
    return _any_of(names), _any_of(folders or ["-false"])


def _any_of(parts: list[str]) -> str:
    return rf"\( {' -o '.join(parts)} \)"


def _expressions(test_files: Iterable[str]) -> dict[str, bytes]:
    """Returns two files of regular expressions for paths that must stay.

    `needed` matches files, `kept` also matches folders.
    """
    lines = [f"^{re.escape(f'./{path}')}" + ("" if path.endswith("/") else "$") for path in test_files]
    files = [line for line in lines if line.endswith("$")]
    return {"needed": os.fsencode("\n".join(files)), "kept": os.fsencode("\n".join(lines))}
