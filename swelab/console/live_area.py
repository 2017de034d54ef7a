"""Draws a progress bar for each running job in the lower lines of the terminal. Without a terminal, prints
only lines."""

import os
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, TextIO

from swelab.console.run_jobs import Job, count_text
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
