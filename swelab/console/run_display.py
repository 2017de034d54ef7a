"""Shows a workflow run in the terminal: finished jobs, a bar for each running job, and the result.

The display replaces Snakemake's terminal handler, and receives the same messages. Jobs report their progress
in a file next to their log (`console.Progress`). With --verbose, --quiet, or another --logger, Snakemake's
own output is kept. Snakemake's log under .snakemake/log/ always has all messages.
"""

import json
import logging
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TextIO

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


Rows = Callable[[], tuple[list[Job], str]]
"""Returns the running jobs, and a line about the whole run."""


class LiveArea:
    """Prints lines above the progress bars. Prints only lines without a terminal, with TERM=dumb, or without
    rich."""

    def __init__(self, stream: TextIO):
        self.stream, self.started = stream, False
        self.live: Any = None
        self.console: Any = None
        if stream.isatty() and os.environ.get("TERM") not in (None, "", "dumb", "unknown"):
            self.console = _console(stream)

    @property
    def width(self) -> int:
        """Width of the terminal in columns. 120 if there is no terminal."""
        return self.console.width if self.console else 120

    def start(self, rows: Rows) -> None:
        """Starts to draw the progress bars."""
        self.started = True
        if self.console:
            from rich.live import Live

            self.live = Live(
                get_renderable=lambda: _table(rows, self.console.height),
                console=self.console,
                refresh_per_second=2,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self.live.start()

    def print(self, text: str) -> None:
        """Prints a line above the bars. A closed stream is ignored."""
        if self.console:
            self.console.print(text, markup=False, highlight=False, soft_wrap=True)
            return
        try:
            self.stream.write(text + "\n")
            self.stream.flush()
        except ValueError:
            pass

    def stop(self) -> None:
        """Removes the progress bars."""
        if self.live:
            self.live.stop()


def _console(stream: TextIO) -> Any:
    """Returns a console that never hides the cursor, because a killed run would leave it hidden. Returns None
    without rich."""
    try:
        from rich.console import Console
    except ImportError:
        return None

    class Plain(Console):
        def show_cursor(self, show: bool = True) -> bool:
            return False

    return Plain(file=stream)


def _table(rows: Rows, height: int) -> Any:
    """Returns a table with as many bars as fit, and a line about the whole run."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    jobs, whole = rows()
    room = max(1, height - 4)
    table = Table.grid(padding=(0, 1), expand=True)
    table.add_column(ratio=5, no_wrap=True, overflow="ellipsis")
    table.add_column(ratio=3, min_width=6)
    table.add_column(no_wrap=True, overflow="ellipsis", justify="right")
    for job in jobs[:room]:
        progress = job.progress()
        bar = ProgressBar(
            total=max(1, progress.total) if progress else None,
            completed=progress.done if progress else 0,
            pulse=not progress,
            animation_time=time.monotonic(),
        )
        left = ends(progress.left if progress else None)
        table.add_row(job.name, bar, f"{count_text(progress)}  {clock(job.seconds)}{left}".strip())
    more = f", {len(jobs) - room} more running" if len(jobs) > room else ""
    # The text is not padded to the full width. Otherwise the ^C that a terminal prints would move lines.
    return Group(table, Text(whole + more, no_wrap=True, overflow="ellipsis"))


def ends(seconds: float | None) -> str:
    """Formats the expected end of a job or run as a time of day. Returns "" if `seconds` is unknown."""
    return f", ends {datetime.now() + timedelta(seconds=seconds):%H:%M}" if seconds else ""


INTO_LOG = (
    'python() { if [ -z "${SWELAB_LOG-}" ]; then command python "$@"; '
    'else SWELAB_PROGRESS=1 exec python "$@" >"$SWELAB_LOG" 2>&1; fi; }; '
)
"""Shell code that redirects the output of a rule's Python process to the rule's log. If the rule has a log,
this Python process must be the last command, because it replaces the shell."""

QUIET_SECONDS = 120
"""Without a terminal, the running jobs are printed if no line was printed for this many seconds."""

_NOISE = re.compile(
    r"Building DAG|Using shell|Provided |Rules claiming|Conda env|Select jobs|Execute \d"
    r"|Assuming unrestricted|Config file|Complete log|Job rate|SLURM run ID|Job \d+ has been submitted"
    r"|Waiting for |Reasons:"
    r"|This was a dry-run|Singularity contain|Apptainer|host: |Removing temporary|Deactivating|Activating"
    r"|Elapsed time|Job stats|Would remove|Removing output files|Exiting because a job|Deferring|Localrules"
    r"|At least one job did not|WorkflowError:\s+At least one job|Stopping further|Error in rule"
    r"|Shutting down|RuleException:\s+CalledProcessError"
)
_SECRET = tuple("workflow_started shellcmd resources_info debug_dag rulegraph job_started progress".split())
_DONE = "Nothing to be done"


def take_over(workflow: Any) -> None:
    """Replaces Snakemake's terminal handler by `Display`, in the main process only."""
    settings, logger = workflow.output_settings, logging.getLogger("snakemake.logging")
    usual = [each for each in logger.handlers if each.name == "DefaultStreamHandler"]
    if usual and workflow.is_main_process and not (settings.verbose or settings.quiet or settings.debug_dag):
        logger.removeHandler(usual[0])
        logger.addHandler(Display(workflow, sys.stdout if settings.dryrun else sys.stderr))


class Display(logging.Handler):
    """Prints the messages of one run as lines, with progress bars below if the stream is a terminal."""

    def __init__(self, workflow: Any, stream: Any):
        super().__init__()
        self.workflow, self.dry = workflow, workflow.output_settings.dryrun
        self.area = LiveArea(stream)
        self.jobs: dict[int, Job] = {}
        self.total = self.finished = self.failed = 0
        self.stats = ""
        self.forecast: Forecast
        self.nothing = self.stopped = self.closed = False
        self.started = self.last = time.monotonic()
        self._wake = threading.Event()
        self._shown: set[tuple[int, int]] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Handles one log message of Snakemake."""
        try:
            event = str(getattr(record, "event", None) or "")
            known = getattr(self, f"_{event}", None) if event else None
            if known:
                known(record)
            elif event not in _SECRET:
                self._message(record)
        except BrokenPipeError:
            raise
        except Exception:
            self.handleError(record)

    def _message(self, record: logging.LogRecord) -> None:
        text = (record.getMessage() if record.msg else "").strip()
        if text.startswith(_DONE):
            self.nothing = True
            self._say("Nothing to be done: all that was asked for is there and up to date.")
        elif text.startswith("Terminating processes"):
            self.stopped = True
            self._say("Stopping: running jobs are ended ...")
        elif restart := re.match(r"Trying to restart job (\d+)", text):
            job = self.jobs.get(int(restart[1]))
            self._say(f"again     {job.name if job else restart[1]}")
        elif text and not _NOISE.match(text) and record.levelno >= logging.INFO:
            self._say(text)

    def _run_info(self, record: logging.LogRecord) -> None:
        counts = dict(getattr(record, "stats", {}))
        self.total = counts.pop("total", sum(counts.values()))
        self.stats = record.getMessage()
        if not self.dry:
            self.forecast = Forecast(Path("results/logs"))
            self.forecast.remaining.update(counts)
            self._say(f"{self.total} jobs; what each of them says is in results/logs/")

    def _job_info(self, record: logging.LogRecord) -> None:
        job = Job.of(record)
        if self.dry:
            self._say(job.dry_run_line())
            return
        job.forget()
        self.jobs[job.number] = job
        if not self.area.started:
            self.area.start(self._rows)
            if not self.area.live:
                threading.Thread(target=self._heartbeat, daemon=True).start()

    def _job_finished(self, record: logging.LogRecord) -> None:
        job = self.jobs.pop(int(getattr(record, "job_id", -1)), None)
        self.finished += 1
        if job:
            self.forecast.record_finish(job)
            width = len(str(self.total))
            count = f"{self.finished:>{width}} of {self.total}"
            self._say(f"{count}  {job.outcome(self.area.width - len(count) - 2)}")
            job.forget()

    def _job_error(self, record: logging.LogRecord) -> None:
        job = self.jobs.pop(int(getattr(record, "jobid", -1)), None)
        if job is None:  # at its end, Snakemake reports each failed job again
            return
        logs = list(getattr(record, "log", [])) or ["none"]
        why = last_words(logs)
        ended = self.stopped or why == "error: interrupted"
        self.failed += not ended
        self._say(f"{'stopped ' if ended else 'FAILED  '}  {job.name}  after {clock(job.seconds)}")
        if not ended:
            self._say(f"          {why}")
            self._say(f"          log: {', '.join(logs)}")
        job.forget()

    def _rows(self) -> tuple[list[Job], str]:
        """Returns the running jobs, and a line about the whole run."""
        seconds, jobs = time.monotonic() - self.started, list(self.jobs.values())
        left = self.forecast.seconds_left(jobs, seconds)
        return jobs, f"{self.finished} of {self.total} jobs, {clock(seconds)}{ends(left)}"

    def _say(self, text: str) -> None:
        self.last = time.monotonic()
        self.area.print(text)

    def _heartbeat(self) -> None:
        while not self._wake.wait(5):
            if time.monotonic() - self.last >= QUIET_SECONDS and self.jobs:
                jobs, whole = self._rows()
                self._say(f"running   {'; '.join(job.line() for job in jobs)} ({whole})")

    def close(self) -> None:
        """Removes the progress bars, and prints how the run ended."""
        if self.closed:
            return
        self.closed = True
        self._wake.set()
        self.area.stop()
        if self.dry and self.stats:
            self._say(f"\n{self.stats.strip()}\n")
        elif self.stopped or self.failed:
            how = "Stopped" if self.stopped else f"{self.failed} of {self.total} jobs failed"
            log = ", ".join(os.path.relpath(path) for path in self.workflow.logger_manager.get_logfile())
            self._say(
                f"{how}; {self.finished} are done. The same command goes on from here. Snakemake's log: {log}"
            )
        elif self.nothing or (self.finished and self.finished == self.total):
            for line in result_lines(self._targets(), Path("results")):
                self._say(line)
        super().close()

    def _targets(self) -> set[str]:
        settings = self.workflow.dag_settings
        return {str(each) for each in settings.targets} if settings else set()
