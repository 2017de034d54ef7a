"""Submits predictions to the service once, waits, and compares the service's verdicts with what was sent.

The service evaluates each instance of a run only once, so changed predictions need another run. Therefore a
run's id is a hash of its predictions. `state.json` in the working folder lists the predictions that were
sent. So a killed run resumes, and no prediction that the service has is sent again.
"""

import json
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from swelab.configs.kinds.subset import DatasetSubset, Subset
from swelab.outcomes import LOST_ROLLOUTS
from swelab.patience import SUBMISSIONS, Patience, repeat
from swelab.records import InputError, Record, digest, write_json
from swelab.records.attempt_records import Prediction
from swelab.service import ServiceError, SubmissionRefused
from swelab.service.sb_cli import STATUS, SbCli, ServiceBenchmark, lasting_refusal
from swelab.service.verdicts import ServiceRun, ServiceVerdict, patch_digest, pending, verdicts

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
