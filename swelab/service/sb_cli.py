"""Runs sb-cli 0.1.5 as a process and works around its faults.

sb-cli exits with 0 even if it could not submit some predictions, and reports them on standard output. It
waits forever for a stalled service. It does not replace an existing report, but writes `-1.json` next to the
report. Its tracebacks may show the key. So this module reads the output, limits the time of each call, and
uses an empty folder for reports. It masks the key in all output. The key is passed to sb-cli only in the
environment.
"""

import os
import re
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from swelab.jobs.child_process import ChildProcess
from swelab.records import InputError, Record, read_json, shorten
from swelab.service import ServiceError, SubmissionRefused

VERSION = "0.1.5"
KEY = "SWEBENCH_API_KEY"
POLL_SECONDS = 0.05
NOT_SUBMITTED = re.compile(r"^Error submitting prediction for instance (\S+): (.*)$", re.MULTILINE)
UPLOADED = re.compile(r"(\d+) new predictions uploaded|Warning: (\d+) predictions already submitted")
STATUS = re.compile(r"status code (\d{3}): (.*)")
KEY_REFUSED, QUOTA = ("401", "403"), ("402",)


@dataclass(frozen=True)
class ServiceBenchmark:
    """A benchmark of the service. subset: the service's name for it. split: dev or test."""

    subset: str
    split: str


class SbCli:
    """The program at `program`. log: receives the program's output. seconds: time limit of a call."""

    def __init__(self, program: Path, seconds: float, log: IO[str]):
        """Raises InputError if the program is missing or has another version, or if the key is not in the
        environment.
        """
        self.program, self.seconds, self.log = program.absolute(), seconds, log
        self.key = os.environ.get(KEY, "")
        if not self.key:
            raise InputError(
                f"${KEY} is not set", expected="the service's key (`sb-cli gen-api-key <e-mail>`)"
            )
        if not program.is_file():
            raise InputError("no such program", program, f"sb-cli {VERSION}, which `make sb-cli` installs")
        probe = "from importlib.metadata import version; print(version('sb-cli'))"
        python = self.program.parent / "python"
        found = subprocess.run([python, "-c", probe], capture_output=True, text=True).stdout.strip()
        if found != VERSION:
            raise InputError(f"sb-cli {found or '?'}", program, f"{VERSION}, which `make sb-cli` installs")

    def quota(self, at: ServiceBenchmark) -> int | None:
        """Returns the number of runs left on a benchmark, or None if unknown.

        Raises ServiceError, SubmissionRefused.
        """
        for line in self._call("get-quotas").splitlines():
            cells = [cell.strip() for cell in re.split("[│|┃]", line) if cell.strip()]
            if cells[:2] == [at.subset, at.split] and cells[2].isdigit():
                return int(cells[2])
        return None

    def submit(
        self, predictions: Path, at: ServiceBenchmark, run_id: str, ids: Sequence[str], whole: bool
    ) -> dict[str, str]:
        """Sends the predictions of `ids` from a file. Returns the ids that were not accepted, each with the
        reason.

        whole: whether `ids` are all predictions in the file. Raises ServiceError if the program fails or does
        not report on each id. Raises SubmissionRefused.
        """
        options = ["--predictions_path", str(predictions), "--run_id", run_id]
        options += [] if whole else ["--instance_ids", ",".join(ids)]
        later = ["--verify_submission", "0", "--wait_for_evaluation", "0", "--gen_report", "0"]
        said = self._call("submit", at.subset, at.split, *options, *later)
        failed = {match[1]: shorten(match[2]) for match in NOT_SUBMITTED.finditer(said)}
        taken = sum(int(match[1] or match[2]) for match in UPLOADED.finditer(said))
        if taken + len(failed) != len(ids):
            raise ServiceError(f"sb-cli reports {taken + len(failed)} predictions, {len(ids)} were sent")
        return failed

    def report(self, at: ServiceBenchmark, run_id: str) -> Record:
        """Returns the current report of a run. Raises ServiceError, SubmissionRefused."""
        with tempfile.TemporaryDirectory(prefix="swelab-sb-cli-") as folder:
            self._call("get-report", at.subset, at.split, run_id, "--overwrite", "1", "-o", folder)
            path = Path(folder, f"{at.subset}__{at.split}__{run_id}.json")
            if not path.is_file():
                raise ServiceError(f"sb-cli wrote no report of run {run_id}")
            record = read_json(path)
        if not isinstance(record, dict):
            raise ServiceError(f"the report of run {run_id} is a {type(record).__name__}")
        return record

    def _call(self, *arguments: str) -> str:
        """Runs sb-cli and returns its output, with the key masked. Raises ServiceError, SubmissionRefused."""
        environment = {**os.environ, "COLUMNS": "100000", "NO_COLOR": "1", "TERM": "dumb"}
        environment |= {"TYPER_STANDARD_TRACEBACK": "1", "_TYPER_STANDARD_TRACEBACK": "1"}
        with tempfile.TemporaryFile() as output:
            running = ChildProcess(lambda _: [str(self.program), *arguments], env=environment, log=output)
            began = time.monotonic()
            try:
                while running.poll() is None and time.monotonic() < began + self.seconds:
                    time.sleep(POLL_SECONDS)
                status = running.poll()
            finally:
                running.stop(grace_seconds=0)
            output.seek(0)
            text = output.read().decode("utf-8", "replace").replace(self.key, "***").replace("\r", "\n")
        with suppress(ValueError):
            self.log.write(f"$ sb-cli {' '.join(arguments)}\n{text}\n")
            self.log.flush()
        if status is None:
            raise ServiceError(f"sb-cli {arguments[0]} did not end in {self.seconds:g} s")
        if status:
            raise fault(arguments[0], text)
        return text


def fault(command: str, message: str) -> ServiceError:
    """Returns the error for a failed command, given the command's output."""
    lines = [line.strip() for line in message.splitlines() if line.strip()] or ["it printed nothing"]
    if found := STATUS.search(message):
        return lasting_refusal(found[1], found[2]) or ServiceError(f"sb-cli {command}: {found[0]}")
    return ServiceError(f"sb-cli {command}: {shorten(lines[-1])}")


def lasting_refusal(status: str, message: str) -> ServiceError | None:
    """Returns the error for a permanent refusal, or None for a fault that may be temporary."""
    if status in KEY_REFUSED:
        return SubmissionRefused(f"the service refused the key in ${KEY} ({status}): {shorten(message)}")
    if status in QUOTA:
        return SubmissionRefused(f"the service's quota is used up ({status}): {shorten(message)}")
    return None
