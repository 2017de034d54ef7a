"""Submits predictions to the service once, waits, and compares the service's verdicts with what was sent.

The service evaluates each instance of a run only once, so changed predictions need another run. Therefore a
run's id is a hash of its predictions. `state.json` in the working folder lists the predictions that were
sent. So a killed run resumes, and no prediction that the service has is sent again.

sb-cli 0.1.5 exits with 0 even if it could not submit some predictions, and reports them on standard output.
It waits forever for a stalled service. It does not replace an existing report, but writes `-1.json` next to
the report. Its tracebacks may show the key. So this module reads the output, limits the time of each call,
and uses an empty folder for reports. It masks the key in all output, and passes it only in the environment.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

from swelab.configs.kinds.subset import DatasetSubset, Subset
from swelab.jobs.child_process import ChildProcess
from swelab.outcomes import LOST_ROLLOUTS, GradeEnd
from swelab.patience import SUBMISSIONS, Patience, repeat
from swelab.records import InputError, Record, as_record, digest, read_json, shorten, write_json
from swelab.records.attempt_records import Grade, Prediction
from swelab.records.task_records import Task
from swelab.records.typed import TypedRecord, field
from swelab.service import ServiceError, SubmissionRefused

VERDICTS = {
    "resolved": GradeEnd.RESOLVED,
    "unresolved": GradeEnd.UNRESOLVED,
    "error": GradeEnd.APPLY_FAILED,
    "failed": GradeEnd.INFRA_ERROR,
    "empty_patch": GradeEnd.EMPTY_PATCH,
}
"""Maps the name of a list in the service's report to our verdict.

`error` lists patches that the harness could not apply or run. `failed` lists evaluations that the service
lost.
"""

REASON = {"error": "the service could not apply or run it", "failed": "the service lost its evaluation"}
COUNTED = (*VERDICTS, "submitted", "completed", "pending")


class ServiceVerdict(TypedRecord):
    """The service's verdict on one prediction."""

    verdict: str = field("the service's word for the verdict: a key of VERDICTS")
    patch_sha256: str = field("hash of the patch that was sent")
    empty: bool = field("whether the patch is empty")


class ServiceRun(TypedRecord):
    """A run at the service: what was sent, and the verdicts."""

    run_id: str = field("name of the run at the service")
    subset: str = field("name of the benchmark at the service")
    split: str = field("split of the benchmark: dev or test")
    instances: dict[str, ServiceVerdict] = field("verdicts keyed by instance id")
    report: dict[str, Any] = field("the service's own report")


def patch_digest(prediction: Prediction) -> str:
    """Returns the SHA-256 of a prediction's patch, or of an empty text if there is no patch."""
    return hashlib.sha256((prediction.model_patch or "").encode("utf-8", "surrogatepass")).hexdigest()


def pending(report: Record) -> int:
    """Returns the number of unfinished evaluations of a run.

    Raises ServiceError if the report does not state the number.
    """
    count = report.get("pending_instances")
    if not isinstance(count, int) or isinstance(count, bool) or count < 0:
        raise ServiceError(f"pending_instances of the report is {shorten(repr(count))}; expected a count")
    return max(count, len(_ids(report, "pending")))


def verdicts(report: Record, submitted: Mapping[str, bool]) -> dict[str, str]:
    """Returns the service's verdict on each submitted instance, as a key of VERDICTS by id.

    submitted: maps instance ids to whether the patch is empty. Raises ServiceError if the report is
    impossible. Such a report has other instances, omits an instance or names it twice. Or its counts differ
    from its ids, an empty patch is resolved, or no instance is evaluated.
    """
    for name in COUNTED:
        _check_count(report, name)
    if report.get("total_instances", 0) < len(submitted):
        raise ServiceError(
            f"the report is of {report.get('total_instances')} tasks, {len(submitted)} were sent"
        )
    ids = set(_ids(report, "submitted"))
    _none(ids - set(submitted), "the report is of instances that were not submitted")
    _none(set(submitted) - ids, "the report does not know instances that were submitted")
    statuses: dict[str, str] = {}
    for name in VERDICTS:
        for instance in _ids(report, name):
            if instance in statuses and {statuses[instance], name} != {"unresolved", "empty_patch"}:
                raise ServiceError(f"{instance} is both {statuses[instance]} and {name} in the report")
            statuses[instance] = name
    _none(set(statuses) - set(submitted), "the report judges instances that were not submitted")
    _none(set(submitted) - set(statuses), "the report has no verdict on instances")
    _none(
        {n for n, empty in submitted.items() if empty and statuses[n] == "resolved"}, "empty patches resolved"
    )
    if submitted and set(statuses.values()) == {"failed"}:
        raise ServiceError(f"the service evaluated none of {len(submitted)} instances: all failed there")
    return statuses


def _ids(report: Record, name: str) -> list[str]:
    ids = report.get(f"{name}_ids") or []
    if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
        raise ServiceError(
            f"{name}_ids of the report is {shorten(repr(ids))}; expected a list of instance ids"
        )
    return ids


def _check_count(report: Record, name: str) -> None:
    count: Any = report.get(f"{name}_instances", 0 if name == "empty_patch" else None)
    ids = _ids(report, name)
    optional = name in ("completed", "empty_patch") and f"{name}_ids" not in report
    if len(set(ids)) != len(ids):
        raise ServiceError(f"{name}_ids of the report names an instance twice")
    if not optional and count != len(ids):
        raise ServiceError(f"{name}_instances of the report is {count}, but it names {len(ids)}")


def _none(ids: Iterable[str], what: str) -> None:
    found = sorted(ids)
    if found:
        raise ServiceError(f"{what}: {len(found)}, such as {found[0]}")


def service_grades(
    tasks: Iterable[Task], predictions: Mapping[str, Prediction], run: ServiceRun, policy: str, subset: str
) -> Iterator[Grade]:
    """Yields the grades of the predicted tasks from a run at the service, in the order of `tasks`.

    Raises InputError if the run was made with other predictions.
    """
    for task in tasks:
        name = task.instance_id
        if name not in predictions:
            continue
        outcome = predictions[name].outcome
        facts: Record = {"instance_id": name, "outcome": outcome, "policy": policy, "subset": subset}
        if outcome in LOST_ROLLOUTS:
            facts |= {"status": GradeEnd.INFRA_ERROR, "reason": f"the rollout ended as {outcome}"}
        else:
            sent = run.instances.get(name)
            if not sent or sent.patch_sha256 != patch_digest(predictions[name]):
                raise InputError(f"{name} was judged for another patch", run.run_id, "these predictions")
            facts |= _grade_fields(sent, run.run_id)
        facts |= {"resolved": facts.get("status") == GradeEnd.RESOLVED}
        yield as_record(facts, Grade, f"grade of {name}")


def _grade_fields(sent: ServiceVerdict, run_id: str) -> Record:
    empty = sent.empty and sent.verdict != "failed"
    return {
        "status": GradeEnd.EMPTY_PATCH if empty else VERDICTS[sent.verdict],
        "reason": "" if empty else REASON.get(sent.verdict, ""),
        "patch_sha256": sent.patch_sha256,
        "scorer": "sb-cli",
        "run_id": run_id,
    }


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


SUBSETS = {
    "swe-bench_verified": "swe-bench_verified",
    "swe-bench_lite": "swe-bench_lite",
    "swe-bench_multimodal": "swe-bench-m",
}
"""Maps the name of a published data set to the service's name.

The key is the last part of the hub name, in lower case.
"""

SETTLING = 5


@dataclass(frozen=True)
class Waiting:
    """poll: seconds between two requests about a run. total: maximum seconds to wait."""

    poll: float
    total: float


def benchmark_of(recipe: Subset, where: str | Path) -> ServiceBenchmark:
    """Returns the service's benchmark for a subset recipe. Raises InputError if there is none."""
    published = recipe if recipe.source == "dataset" else DatasetSubset(source="dataset")
    name = (published.dataset or "").rpartition("/")[2].lower()
    subset = published.service or SUBSETS.get(name, "")
    if not subset:
        expected = f"one of {', '.join(sorted(set(SUBSETS.values())))} as `service`"
        raise InputError("a set that the service does not judge", where, expected)
    return ServiceBenchmark(subset, published.split)


def sendable(predictions: Mapping[str, Prediction], ids: Sequence[str], policy: str) -> list[Prediction]:
    """Returns the predictions to submit: all of `ids` whose rollout was not lost, sorted by id.

    Raises InputError if a prediction is for an unknown task, or if no prediction is left.
    """
    unknown = sorted(set(predictions) - set(ids))
    if unknown:
        raise InputError(f"{len(unknown)} predictions match no task, such as {unknown[0]}", policy)
    chosen = [predictions[name] for name in sorted(set(ids) & set(predictions))]
    rows = [
        Prediction(instance_id=row.instance_id, model_name_or_path=policy, model_patch=row.model_patch or "")
        for row in chosen
        if row.outcome not in LOST_ROLLOUTS
    ]
    if not rows:
        raise InputError(f"none of {len(chosen)} predictions can be submitted", policy, "rollouts that ended")
    return rows


def run_name(policy: str, at: ServiceBenchmark, rows: Sequence[Prediction]) -> str:
    """Returns the id of a run: the policy's name, and a hash of the predictions and the benchmark."""
    return f"{re.sub('[^A-Za-z0-9._-]', '-', policy)}-{digest([at.subset, at.split, rows])[:12]}"


def judge_by_service(
    rows: list[Prediction], at: ServiceBenchmark, policy: str, work: Path, program: SbCli, wait: Waiting
) -> ServiceRun:
    """Submits `rows` unless an earlier call did, waits, and returns the service's verdict on each row.

    Raises SubmissionRefused if the key is refused or the quota is used up. Raises ServiceError for faults and
    malformed reports. Raises InputError.
    """
    run = run_name(policy, at, rows)
    ids = [row.instance_id for row in rows]
    state = Submissions(work, run)
    if not state.begun and program.quota(at) == 0:
        raise SubmissionRefused(f"no runs left on {at.subset} {at.split}: the service's quota is used up")
    _submit(rows, ids, at, program, state, wait)
    empty = {row.instance_id: not (row.model_patch or "").strip() for row in rows}
    report, found = _await(lambda: program.report(at, run), empty, wait)
    instances = {
        name: ServiceVerdict(verdict=found[name], patch_sha256=patch_digest(row), empty=empty[name])
        for name, row in zip(ids, rows)
    }
    return ServiceRun(run_id=run, subset=at.subset, split=at.split, instances=instances, report=report)


class Submissions:
    """The predictions of a run that the service has accepted.

    They are stored in a folder, so that none is lost if the process is killed.
    """

    def __init__(self, work: Path, run: str):
        self.path, self.run = work / "state.json", run
        self.predictions = work / "predictions.json"
        try:
            state = json.loads(self.path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            state = {}
        known = isinstance(state, dict) and state.get("run_id") == run
        self.begun = known
        self.ids: set[str] = set(state.get("submitted", [])) if known else set()

    def note(self, ids: Sequence[str] = ()) -> None:
        """Records that the service also has the predictions `ids`."""
        self.begun = True
        self.ids |= set(ids)
        write_json(self.path, {"run_id": self.run, "submitted": sorted(self.ids)})


def _submit(
    rows: list[Prediction],
    ids: list[str],
    at: ServiceBenchmark,
    program: SbCli,
    state: Submissions,
    wait: Waiting,
) -> None:
    """Submits until the service has all predictions.

    Raises ServiceError after the last attempt. Raises SubmissionRefused immediately.
    """
    patience = Patience(replace(SUBMISSIONS, first=wait.poll))

    def once() -> None:
        remaining = [name for name in ids if name not in state.ids]
        if not remaining:
            return
        write_json(state.predictions, rows)
        state.note()
        try:
            failed = program.submit(state.predictions, at, state.run, remaining, whole=remaining == ids)
        except SubmissionRefused:
            raise
        except ServiceError as error:
            failed = dict.fromkeys(remaining, str(error))
        state.note([name for name in remaining if name not in failed])
        _refusal(failed)
        if failed:
            first, why = next(iter(failed.items()))
            what = f"{len(failed)} of {len(ids)} predictions were not taken"
            raise ServiceError(f"{what}, such as {first}: {why}")

    def pause(error: ServiceError) -> float | None:
        return None if isinstance(error, SubmissionRefused) else patience.next_pause()

    repeat(once, ServiceError, pause)


def _refusal(failed: Mapping[str, str]) -> None:
    for why in failed.values():
        if (status := STATUS.search(why)) and (refused := lasting_refusal(*status.groups())):
            raise refused


def _await(
    ask: Callable[[], Record], empty: Mapping[str, bool], wait: Waiting
) -> tuple[Record, dict[str, str]]:
    """Waits for the finished report, and returns (report, verdicts).

    Tolerates up to SETTLING consecutive faults.
    """
    deadline, faulty, pending_count, last = time.monotonic() + wait.total, 0, len(empty), ""
    while True:
        try:
            report = ask()
            pending_count, before = pending(report), pending_count
            if pending_count != before:
                print(f"{len(empty)} submitted, {pending_count} pending", file=sys.stderr, flush=True)
            if not pending_count:
                return report, verdicts(report, empty)
            faulty, last = 0, ""
        except SubmissionRefused:
            raise
        except ServiceError as error:
            last, faulty = str(error), faulty + 1
            if faulty > SETTLING:
                raise
        if time.monotonic() + wait.poll > deadline:
            break
        time.sleep(wait.poll)
    told = f"; last fault: {last}" if last else ""
    what = f"not judged in {wait.total / 60:g} min: {pending_count} of {len(empty)} pending"
    raise ServiceError(f"{what}{told}; the same command goes on waiting")
