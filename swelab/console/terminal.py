"""Terminal output of scripts: one line for an error, and progress."""

import errno
import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

from swelab.console.job_runs import note_run
from swelab.records import Fault, share_with_group
from swelab.records.typed import TypedRecord, field

SUFFIX = ".progress.json"
"""Suffix of a job's progress file. The file is next to the job's log, and this suffix replaces `.log`."""


class Tee:
    """A text stream that also writes its text to a log file."""

    def __init__(self, stream: TextIO, log: TextIO):
        self.stream, self.log = stream, log

    def write(self, text: str) -> int:
        """Writes to the stream and the log. Returns the result of the stream's write. A line that is redrawn
        in the terminal becomes a new line in the log."""
        self.log.write(text.replace("\r\x1b[K", "\n"))
        return self.stream.write(text)

    def flush(self) -> None:
        """Flushes the log and then the stream, so that the log has everything that the terminal shows."""
        self.log.flush()
        self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


_OF_A_PATH = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP)


def run_script(main: Callable[[], int | None]) -> None:
    """Runs a script's `main`, and exits with its result or 0. After a Fault, prints one line and exits with
    2.

    If SWELAB_LOG names a file, standard error is copied to that file, and the run is recorded next to it.
    """
    log = os.environ.get("SWELAB_LOG", "")
    if module := getattr(sys.modules["__main__"], "__spec__", None):
        sys.argv[0] = f"python -m {module.name}"  # argparse's usage line shows this name
    share_with_group("results")
    code: object = 1
    try:
        _run(main, log)
    except SystemExit as end:
        code = end.code
        raise
    finally:
        if log:
            note_run(log, code if isinstance(code, int) else 1)


def _run(main: Callable[[], int | None], log: str) -> None:
    """Runs `main` and exits, without recording the run."""
    try:
        if log and not _is_open(log):
            sys.stderr = Tee(sys.stderr, open(log, "w", encoding="utf-8"))
        sys.exit(main() or 0)
    except KeyboardInterrupt:
        fail("interrupted", 130)
    except Fault as error:
        fail(str(error))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except shutil.Error as error:  # copytree lists the errors of all files: report the first
        faults = error.args[0]
        fail(str(faults[0][-1] if isinstance(faults, list) else faults))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            fail(f"{error.filename or 'the output folder'}: disk full; expected room to write")
        if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
            fail(f"{error.filename or 'a file'}: {error.strerror}")
        if error.errno in _OF_A_PATH and error.filename:
            fail(f"{error.filename}: {error.strerror}; expected another path")
        raise


def _is_open(log: str) -> bool:
    """Returns whether standard error already goes to this file."""
    try:
        return os.path.samestat(os.stat(log), os.fstat(2))
    except OSError:
        return False


def fail(message: str, code: int = 2) -> None:
    """Prints `error: message` as one line to standard error, and exits with `code`."""
    print("error: " + " ".join(message.split()), file=sys.stderr, flush=True)
    sys.exit(code)


class JobProgress(TypedRecord):
    """The progress of a job. The job writes this record to a file next to its log."""

    label: str = field("description of the work", default="")
    done: int = field("number of finished instances")
    total: int = field("number of instances")
    good: int | None = field("number of successful instances; null if successes are not counted")
    left: float | None = field("estimated seconds to the end; null if unknown")


class Progress:
    """Shows the progress of a job: instances done and in total, successes, rate, and time left.

    On a terminal one line is redrawn. Elsewhere a line is printed every `quiet_seconds` and at the end, so
    that logs stay short. If SWELAB_PROGRESS is set, the job belongs to a workflow with a display. Then a
    JobProgress record is also written every second, to the file with SUFFIX next to SWELAB_LOG.
    """

    def __init__(self, total: int, label: str, stream: TextIO | None = None, quiet_seconds: float = 30):
        self.total, self.label = total, label
        self.stream = stream or sys.stderr
        self.live = self.stream.isatty()
        self.interval = 0.2 if self.live else quiet_seconds
        self.finished = self.skipped = 0
        self.good: int | None = None
        log = os.environ.get("SWELAB_LOG", "") if os.environ.get("SWELAB_PROGRESS") else ""
        self.shared = log.removesuffix(".log") + SUFFIX if log else ""
        self._start = self._last = self._last_report = time.monotonic()
        self._lock = threading.Lock()

    def skip(self, count: int, good: int = 0) -> None:
        """Counts instances that an earlier run finished. good: number of successful ones. These instances do
        not affect the rate."""
        self.finished += count
        self.skipped += count
        self.good = (self.good or 0) + good
        self._share(time.monotonic())

    def done(self, good: bool | None = None) -> None:
        """Counts one more finished instance. good: whether the instance succeeded."""
        with self._lock:
            self.finished += 1
            if good is not None:
                self.good = (self.good or 0) + good
            now = time.monotonic()
            if now - self._last >= self.interval:
                self._last = now
                self._print(now)
            if now - self._last_report >= 1:
                self._last_report = now
                self._share(now)

    def close(self) -> None:
        """Prints the final state and ends the line."""
        self._print(time.monotonic())
        self._share(time.monotonic())
        if self.live:
            self.stream.write("\n")

    def _rate(self, now: float) -> tuple[float, float | None]:
        """Returns (instances per second, seconds left). The seconds are None if nothing is done yet."""
        rate = (self.finished - self.skipped) / max(now - self._start, 1e-9)
        return rate, (self.total - self.finished) / rate if rate else None

    def _share(self, now: float) -> None:
        """Writes the job's progress file. Errors are ignored, because a full disk is not this job's fault."""
        if not self.shared:
            return
        told = JobProgress(
            label=self.label, done=self.finished, total=self.total, good=self.good, left=self._rate(now)[1]
        )
        try:
            with open(self.shared, "w", encoding="utf-8") as stream:
                stream.write(json.dumps(told))
        except OSError:
            self.shared = ""

    def _print(self, now: float) -> None:
        rate, left = self._rate(now)
        good = "" if self.good is None else f", {self.good} ok"
        speed = "" if left is None else f", {speed_text(rate)}, {clock(left)} left"
        text = f"{self.label}: {self.finished}/{self.total}{good}{speed}"
        self.stream.write(f"\r\x1b[K{text}" if self.live else text + "\n")
        self.stream.flush()


def speed_text(rate: float) -> str:
    """Formats a number per second, or per minute or hour if it is small."""
    for unit, seconds in (("s", 1), ("min", 60)):
        if rate * seconds >= 1:
            return f"{rate * seconds:.1f}/{unit}"
    return f"{rate * 3600:.1f}/h"


def clock(seconds: float) -> str:
    """Formats `seconds` as h:mm:ss or m:ss."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
