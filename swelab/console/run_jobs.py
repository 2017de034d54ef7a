"""Describes a workflow job in words: its name, progress and outcome."""

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from swelab.console.job_runs import read_runs
from swelab.console.terminal import SUFFIX, JobProgress, clock
from swelab.records import Fault, read_json, shorten
from swelab.records.score_records import VerifiedScore

SCORE, REPORT = "verified_score.json", "report.html"
_REASON = re.compile(r"([A-Z][^:;]*)(?:: ([^;]*))?")


@dataclass
class Job:
    """A job of the workflow. number: the job's number in Snakemake. log: path of its log file, or "". reason:
    Snakemake's reason to run the job."""

    number: int
    rule: str
    name: str
    log: str
    reason: str = ""
    started: float = field(default_factory=time.monotonic)

    @classmethod
    def of(cls, record: logging.LogRecord) -> "Job":
        """Returns the job of a Snakemake message. The job's name consists of the rule and the wildcards."""
        told = record.__dict__
        words = [str(value) for value in (told.get("wildcards") or {}).values()]
        words = [word for word in words if word and word != "000of001"]
        logs = list(told.get("log") or [""])
        rule, reason = told["rule_name"], told.get("reason") or ""
        return cls(int(told["jobid"]), rule, " ".join([rule, *words]), logs[0], reason)

    @property
    def seconds(self) -> float:
        """Seconds since the job started, or since it was submitted to a cluster."""
        return time.monotonic() - self.started

    @property
    def shared(self) -> Path | None:
        """The file in which the job reports its progress. None if the job has no log."""
        return Path(self.log.removesuffix(".log") + SUFFIX) if self.log else None

    def progress(self) -> JobProgress:
        """Reads the progress that the job reported. Returns an empty record if nothing was reported yet."""
        try:
            told = json.loads(self.shared.read_text(encoding="utf-8")) if self.shared else {}
            known = isinstance(told, dict) and {"done", "total", "good", "left"} <= told.keys()
            return JobProgress.of(told if known else {})
        except (OSError, ValueError):
            return JobProgress.of({})

    def forget(self) -> None:
        """Deletes the job's progress file, also if an earlier run wrote the file."""
        if self.shared:
            self.shared.unlink(missing_ok=True)

    def outcome(self, width: int) -> str:
        """Returns the line of a finished job: name, instances, successes, time. Uses columns if `width` is at
        least 80."""
        parts = self.name, count_text(self.progress()), clock(self.seconds)
        if width < 80:
            return "  ".join(part for part in parts if part)
        return f"{parts[0]:<46}  {parts[1]:<18}  {parts[2]}"

    def line(self) -> str:
        """Describes the progress of a running job."""
        told = self.progress()
        left = f", {clock(told.left)} left" if told and told.left else ""
        return f"{self.name} {count_text(told)} {clock(self.seconds)}{left}".replace("  ", " ")

    def dry_run_line(self) -> str:
        """Returns the line of a dry run: the job's name, and the reason why the job would run."""
        return f"{self.name:<52}  {reasons(self.reason)}"


class Forecast:
    """Estimates the remaining time of a run from durations of finished jobs, in this run and in earlier
    runs."""

    def __init__(self, logs: Path):
        self.durations: dict[str, list[float]] = {}
        self.remaining: Counter[str] = Counter()
        self.worked = 0.0
        for rule, _, run in read_runs(logs):
            if run.code == 0:
                self.durations.setdefault(rule, []).append(run.seconds)

    def record_finish(self, job: Job) -> None:
        """Records the duration of a finished job, and removes the job from the remaining jobs."""
        self.durations.setdefault(job.rule, []).append(job.seconds)
        self.remaining[job.rule] -= 1
        self.worked += job.seconds

    def seconds_left(self, jobs: Sequence[Job], elapsed: float) -> float | None:
        """Estimates the seconds until the run ends. Returns None if a remaining rule has no finished job
        yet."""
        mean = {rule: sum(seconds) / len(seconds) for rule, seconds in self.durations.items()}
        wanted = +self.remaining
        if not wanted or not wanted.keys() <= mean.keys():
            return None
        left = [_seconds_left(job, mean[job.rule]) for job in jobs if job.rule in wanted]
        waiting = wanted - Counter(job.rule for job in jobs)
        work = sum(count * mean[rule] for rule, count in waiting.items()) + sum(left)
        at_once = (self.worked + sum(job.seconds for job in jobs)) / max(elapsed, 1)
        return max(work / max(at_once, 1), *left, 0)


def _seconds_left(job: Job, mean: float) -> float:
    """Estimates the seconds until a running job ends. A job that says nothing and runs longer than the mean
    of its rule may run for as long again as it is late."""
    told = job.progress()
    if told and told.left is not None:
        return told.left
    return abs(mean - job.seconds)


def count_text(progress: JobProgress) -> str:
    """Describes the number of finished and successful instances. Returns "" if the job reported no
    progress."""
    if not progress:
        return ""
    good = "" if progress.good is None else f", {progress.good} ok"
    return f"{progress.done}/{progress.total}{good}"


def reasons(text: str) -> str:
    """Shortens Snakemake's reasons to run a job. Only the first of several files is named."""
    parts = []
    for what, files in _REASON.findall(text):
        first, *others = files.split(", ") if files and not what.startswith("Params") else [""]
        name = f"{first.strip()}{f' and {len(others)} more' if others else ''}"
        if what.startswith("Missing output"):
            return f"there is no {name}"
        told = "a job before makes" if what.startswith("Input files updated by another") else what.strip()
        parts.append(f"{told[:1].lower()}{told[1:]} {name}".strip())
    return "; ".join(parts) or "asked for"


def last_words(logs: Sequence[str]) -> str:
    """Returns the line of a failed job's log that explains the failure: the last `error:` line, or else the
    last line."""
    for name in logs:
        try:
            lines = Path(name).read_text(encoding="utf-8", errors="replace").splitlines()[-200:]
        except OSError:
            continue
        lines = [line.strip() for line in lines if line.strip()]
        if lines:
            return shorten(
                next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1]), 1000
            )
    return "it left no word: it was killed, or never started"


def result_lines(targets: set[str], results: Path) -> Iterator[str]:
    """Yields lines about each requested experiment: its name, the resolve rates, and the path of its page."""
    asked = {Path(target).parent for target in targets if Path(target).name in (SCORE, REPORT)}
    if not targets or "all" in targets:
        asked.add(results)
    for folder in sorted(asked):
        yield from _result(folder / SCORE, folder / REPORT)


def _result(score: Path, page: Path) -> Iterator[str]:
    try:
        record = VerifiedScore.of(read_json(score))
        yield ""
        if experiment := record.get("manifest", {}).get("experiment"):
            yield f"experiment {experiment}"
        for name, row in record.policies.items():
            low, high = row.interval
            rate = f"{row.resolved} of {row.total} resolved, {row.resolve_rate:.1%}"
            lost = f"; {row.infra_errors} lost to infrastructure" if row.infra_errors else ""
            yield f"{name:<24}  {rate} (95 % interval {low:.1%} to {high:.1%}){lost}"
    except (Fault, KeyError, TypeError, ValueError, AttributeError):
        return
    if page.is_file():
        yield f"page: {page}   score: {score}"
