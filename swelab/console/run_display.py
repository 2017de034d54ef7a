"""Shows a workflow run in the terminal: finished jobs, a bar for each running job, and the result.

The display replaces Snakemake's terminal handler, and receives the same messages. Jobs report their progress
in a file next to their log (`console.Progress`). With --verbose, --quiet, or another --logger, Snakemake's
own output is kept. Snakemake's log under .snakemake/log/ always has all messages.
"""

import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, TextIO

from swelab.console.run_jobs import Forecast, Job, count_text, last_words, result_lines
from swelab.console.terminal import clock

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
_SECRET = (
    "workflow_started",
    "shellcmd",
    "resources_info",
    "debug_dag",
    "rulegraph",
    "job_started",
    "progress",
)
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
