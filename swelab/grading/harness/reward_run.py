"""Runs a task's own script on a patch, or the solution of such a task, with the same paths as Harbor.

The script judges in a fresh sandbox with its files in /tests. No code of the patch has run before the script
starts. The reward files are read when all processes of the script have ended.
"""

import base64
import io
import re
import shlex
import tarfile
from contextlib import suppress
from dataclasses import dataclass, replace

from swelab.grading.evidence import RunEvidence, ended_run
from swelab.grading.harness.empty_history import FOLDER as HISTORY
from swelab.grading.harness.empty_history import history_files, history_line
from swelab.grading.harness.guard import pack_tar
from swelab.grading.harness.patch_run import LOG_BYTES, PREPARE_SECONDS
from swelab.grading.harness.prediction_files import whole_files
from swelab.grading.harness.reward_verdict import REWARD_FILES
from swelab.grading.harness.spec import RunSpec
from swelab.outcomes import GradeEnd
from swelab.records import InputError, Record
from swelab.records.patch_names import PatchRefused
from swelab.records.patches import Patch
from swelab.records.task_records import Task
from swelab.sandbox import SCRIPTS, WORKDIR, Backend, Image, Limits, PathRefused, Sandbox, SandboxError
from swelab.sandbox.working_copy import diff
from swelab.tasks.image_history import HistoryRefused, prepare
from swelab.tasks.patch_application import encode_patch

SOLVE_SECONDS = 1800
_REWARD_BYTES = 1 << 16
_GIT = re.compile(rb"\bgit\b")
_REACHES = re.compile(r"logs/verifier|\breward\.(?:txt|json)\b|swelab-scripts")
_APPLY = """cd {workdir} || exit 90
git -c safe.directory='*' -c core.fsmonitor= apply --whitespace=nowarn {name} ||
    {{ patch --batch --forward --dry-run --fuzz=5 -p1 -i {name} >&2 &&
       patch --batch --forward --fuzz=5 -p1 --no-backup-if-mismatch -i {name} >&2; }}"""


@dataclass(frozen=True)
class RewardRun:
    """A patch in a fresh sandbox of its task, for one run. workdir: where the script starts."""

    spec: RunSpec
    patch: Patch
    sandbox: Sandbox
    limits: Limits
    workdir: str = WORKDIR

    def evidence(self) -> RunEvidence:
        """Runs the script and returns the evidence.

        Raises InputError (unusable task), SandboxError, OSError.
        """
        files = lay(self.sandbox, "tests", self.spec.verifier, self.spec.instance_id)
        if "test.sh" not in files:
            raise InputError("no test.sh in verifier_tar", self.spec.instance_id, "a script that judges")
        if self.patch.changes and (fault := self._apply()):
            return fault
        self._replace_history(files)
        seconds = self.spec.seconds
        bounds = replace(self.limits, wall_seconds=seconds, cpu_seconds=2 * seconds, output_bytes=LOG_BYTES)
        result = self.sandbox.exec(
            f"mkdir -p {SCRIPTS}/logs/verifier && chmod +x {SCRIPTS}/tests/test.sh && "
            f"{entering(self.workdir)} && exec /tests/test.sh",
            env=dict(self.spec.verifier_env),
            limits=bounds,
        )
        log = result.output.decode("utf-8", "replace")
        facts: Record = {"guarded": False, "sealed": "unwatched", "code": result.returncode, "log": log}
        facts |= {"timed_out": result.timed_out, "limit": result.limit, "findings": self._findings()}
        return RunEvidence.of(facts | self._read_rewards() | {"tests_changed": self._changed_file(files)})

    def _apply(self) -> RunEvidence | None:
        """Applies the patch. Returns how the run ended if the patch cannot be applied."""
        name = f"{SCRIPTS}/patch.diff"
        try:
            text = whole_files(self.spec, self.patch, self.sandbox).text
        except PatchRefused as refusal:
            return ended_run("not_applied", str(refusal))
        self.sandbox.put(name, encode_patch(text))
        bounds = replace(self.limits, wall_seconds=PREPARE_SECONDS, cpu_seconds=2 * PREPARE_SECONDS)
        result = self.sandbox.exec(_APPLY.format(workdir=WORKDIR, name=name), limits=bounds)
        self.sandbox.exec(f"rm -f {name}")
        if result.limit not in ("", "output"):
            return ended_run(GradeEnd.UNRESOLVED, f"the patch cannot be applied ({result.limit})")
        return ended_run("not_applied", "no way of applying it succeeded") if result.returncode else None

    def _replace_history(self, files: dict[str, bytes]) -> None:
        """Replaces the checkout's repository by an empty one, unless a file of the script names git."""
        if any(_GIT.search(data) for data in files.values()):
            return
        folder = f"{SCRIPTS}/{HISTORY}"
        self.sandbox.put(f"{folder}/all.tar", pack_tar(history_files(WORKDIR, folder)))
        self.sandbox.exec(f"tar -xf {folder}/all.tar -C {folder} && {history_line(folder)}; rm -rf {folder}")

    def _findings(self) -> list[str]:
        """Returns a finding for each name of a reward file or its folder in the patch's added lines."""
        added = (line for line in self.patch.text.split("\n") if line.startswith("+"))
        return sorted({f"it names {match[0]}" for line in added for match in _REACHES.finditer(line)})

    def _read_rewards(self) -> Record:
        """Returns {"rewards": texts of the reward files, keyed by name}.

        If a file cannot be read, there are no texts, and "reward_fault" is the reason.
        """
        rewards: dict[str, str] = {}
        for name in REWARD_FILES:
            try:
                data = self.sandbox.get(f"{SCRIPTS}/logs/verifier/{name}", _REWARD_BYTES)
                rewards[name] = data.decode("utf-8", "replace")
            except FileNotFoundError:
                continue
            except PathRefused:
                return {"rewards": {}, "reward_fault": f"{name} is no plain file of fair size"}
        return {"rewards": rewards}

    def _changed_file(self, files: dict[str, bytes]) -> str:
        """Returns the path of the first verifier file that the run changed, or "" if none was changed."""
        for name, data in files.items():
            with suppress(FileNotFoundError, PathRefused):
                if self.sandbox.get(f"{SCRIPTS}/tests/{name}", len(data) + 1) == data:
                    continue
            return f"/tests/{name}"
        return ""


@dataclass(frozen=True)
class SolutionRun:
    """The result of a task's solution.

    patch: what the solution changed. fault: what was odd about its run, or "".
    """

    patch: str
    fault: str


def solve(task: Task, backend: Backend, image: Image, limits: Limits) -> SolutionRun:
    """Runs a task's solution in a sandbox like the agent's. Raises InputError, SandboxError, OSError."""
    with backend.start(None, image=image, limits=limits) as sandbox:
        try:
            base = prepare(sandbox, task)
        except HistoryRefused as fault:
            return SolutionRun("", str(fault))
        lay(sandbox, "solution", task.solution_tar, task.instance_id)
        bounds = replace(limits, wall_seconds=SOLVE_SECONDS, cpu_seconds=2 * SOLVE_SECONDS)
        result = sandbox.exec(f"{entering(image.workdir)} && bash /solution/solve.sh", limits=bounds)
        patch = diff(sandbox, base)
    if result.returncode:
        return SolutionRun(patch, f"solve.sh ended with {result.limit or f'exit code {result.returncode}'}")
    return SolutionRun(patch, "" if patch else "solve.sh changed no file of the working directory")


def entering(workdir: str) -> str:
    """Returns Bash that changes to the image's working directory, or to WORKDIR if that directory does not
    exist.
    """
    return f"{{ cd {shlex.quote(workdir)} || cd {WORKDIR}; }} 2>/dev/null"


def lay(sandbox: Sandbox, part: str, packed: str, task: str) -> dict[str, bytes]:
    """Unpacks the tar of a task's row into `part` of SCRIPTS, and returns the contents of the files by path.

    Raises InputError if there is no such tar. Raises SandboxError, OSError.
    """
    try:
        data = base64.b64decode(packed, validate=True)
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            files = {each.name: stream.read() for each in tar if (stream := tar.extractfile(each))}
    except (ValueError, tarfile.TarError):
        raise InputError(f"its files of {part}/ are no tar in base64", task) from None
    if any(name.startswith("/") or ".." in name.split("/") for name in files):
        raise InputError(f"a file of {part}/ leads out of it", task)
    name, place = f"{SCRIPTS}/{part}.tar", f"{SCRIPTS}/{part}"
    sandbox.put(name, data)
    done = sandbox.exec(f"mkdir -p {place} && tar -xf {name} -C {place} && rm {name}")
    if done.returncode:
        raise SandboxError(
            f"the files of {part}/ cannot be unpacked: {done.output.decode('utf-8', 'replace')[:200]}"
        )
    return files
