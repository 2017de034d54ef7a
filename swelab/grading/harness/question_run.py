"""A task's question in one sandbox: patch, question files, no tests; the values that the code says.

The values leave on the pipe that carries the command's output: the test runner's own output goes nowhere.
"""

import errno
import os
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from swelab.grading.evidence import RunEvidence
from swelab.grading.harness import protected, script
from swelab.grading.harness.guard import CLEARED, Guard, pack_tar
from swelab.grading.harness.patch_run import PatchRun
from swelab.grading.harness.spec import RunSpec
from swelab.sandbox import WORKDIR, ExecResult, Limits, Sandbox, SandboxError
from swelab.tasks.checkout import encode_patch
from swelab.witness import CHANNEL, runtime_files

SAID_BYTES = 9 << 20
"""Bytes of values that are kept; a runtime of ours says less."""

FULL_BYTES = 7_900_000
"""Bytes of values after which a runtime of ours may have left some unsaid: it says at most 8 MB."""

_READY = b"ready\n"
"""Said before the patch's code can run: without it, what went wrong is none of its doing."""

_NO_ROOM = 94
_NOT_READY = "exit 92"
_TESTS = r"\( -name 'test_*.py' -o -name '*_test.py' \)"


@dataclass(frozen=True)
class Said:
    """What a question's run said. ended: why there is no more of it; "" where it came to its end."""

    values: bytes
    ended: str = ""


class QuestionRun:
    """A sandbox in which the tests of a task are questions; `prepare` first, then `ask`.

    The patch is applied and what decides how it is judged is restored, as in the ordinary run. Of the tests
    only what a question needs is there; git's folder is not.
    """

    def __init__(self, spec: RunSpec, patch: str, sandbox: Sandbox, limits: Limits):
        self.spec, self.sandbox, self.limits = spec, sandbox, limits
        self._run = PatchRun(spec, patch, sandbox, limits, frozenset())
        self._before: list[str] = []
        self._parts: dict[str, bytes] = {}

    def prepare(self) -> RunEvidence | None:
        """Applies the patch: how the run ended if that failed. Raises InputError (unusable task),
        SandboxError, OSError."""
        applied, remove = self._run.restorable()
        guard, diff = self._run.guard, encode_patch(self.spec.tests_diff)
        names = b"".join(os.fsencode(path) + b"\0" for path in remove)
        self._parts = {"remove": names, "test.diff": diff}
        lines = [f"G={guard.prepared}", f"R={guard.folder}/remove", protected.RESTORE]
        if diff:
            lines.append(f"git apply --whitespace=nowarn {guard.folder}/test.diff || {_NOT_READY}")
        self._before = [*lines, f"rm -rf $G $R {guard.folder}/test.diff .git"]
        return applied

    def ask(
        self, files: Mapping[str, str], args: Iterable[str], removed: Iterable[str], kept: Iterable[str]
    ) -> Said:
        """Runs question files and returns what they said.

        removed: files that must not be there; kept: test files that must, of those that this patch's
        repository has. Raises SandboxError, OSError.
        """
        folder = self._run.guard.folder
        parts = {f"tree/{path}": text.encode() for path, text in files.items()}
        parts |= {f"runtime/{name}": data for name, data in runtime_files().items()}
        for name, paths in (("removed", removed), ("kept", kept)):
            parts[name] = b"".join(os.fsencode(f"./{path}") + b"\0" for path in paths)
        self.sandbox.put(f"{folder}/question.tar", pack_tar({**self._parts, **parts}))
        bounds = replace(
            self.limits,
            wall_seconds=self.spec.seconds,
            cpu_seconds=2 * self.spec.seconds,
            output_bytes=SAID_BYTES,
        )
        done = self.sandbox.exec(self._command(folder, args), limits=bounds)
        self._before, self._parts = [], {}
        self._run.guard = Guard(WORKDIR)  # no two runs in the same folder: values may hold its name
        if not done.output.startswith(_READY):
            return _unasked(done)
        ended = done.limit or (f"exit code {done.returncode}" if done.returncode not in (0, 1) else "")
        ended = ended or ("output" if len(done.output) > FULL_BYTES else "")
        return Said(done.output.removeprefix(_READY), ended)

    def _command(self, folder: str, args: Iterable[str]) -> str:
        """Bash that says on its standard output that it is ready, then the values, and nothing else."""
        not_there = f"{{ printf %65536s >{folder}/room || exit {_NO_ROOM}; {_NOT_READY}; }}"
        return "\n".join([
            "exec 3>&1 >/dev/null 2>&1 </dev/null",
            f"unset {' '.join(CLEARED)}",
            f"tar -xf {folder}/question.tar -C {folder} || {not_there}",
            *self._before,
            f"find . -path ./{protected.INSTALLED} -prune -o {_TESTS} -type f -print0 "
            f"| grep -zvxFf <(tr '\\0' '\\n' <{folder}/kept) >>{folder}/removed",
            f"xargs -0 rm -rf -- <{folder}/removed",
            f"find . -path ./{protected.INSTALLED} -prune -o -name __pycache__ -prune -exec rm -rf {{}} +",
            f"tar -c -C {folder}/tree . | tar -x || {not_there}",
            f"rm -rf {folder}/tree {folder}/removed {folder}/kept {folder}/question.tar",
            f"export PYTHONPATH={folder}/runtime${{PYTHONPATH:+:$PYTHONPATH}} PYTHONHASHSEED=0 {CHANNEL}=3",
            "echo ready >&3",
            f"{script.launcher(self.spec.eval_script or self.spec.test_cmd)} -q {shlex.join(args)}",
        ])  # fmt: skip


def _unasked(done: ExecResult) -> Said:
    """What there is of a question that was not put into place. Raises OSError where there was no room,
    SandboxError where a limit was met."""
    if done.returncode == _NO_ROOM:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "the question's sandbox")
    if done.limit:
        raise SandboxError(f"the question could not be put into place: limit {done.limit} was met")
    return Said(b"", f"exit code {done.returncode}, before its tests")
