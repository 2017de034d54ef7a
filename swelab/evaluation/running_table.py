"""Shows the running attempts in a table at the bottom of the terminal: step, cost and last command of
each."""

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from swelab.console.terminal import clock
from swelab.records import shorten

SHOWN_COMMAND = 100


@dataclass
class Attempt:
    """A running attempt. began: start time, measured with time.monotonic()."""

    began: float
    state: str = "sandbox"
    step: int = 0
    cost: float = 0.0
    command: str = ""


class Running:
    """The running attempts, and the numbers of finished attempts by status. Thread-safe."""

    def __init__(self, total: int):
        self.total = total
        self.ends: dict[str, int] = {}
        self._now: dict[str, Attempt] = {}
        self._lock = threading.Lock()

    def begin(self, name: str) -> None:
        """Called when an attempt begins."""
        with self._lock:
            self._now[name] = Attempt(time.monotonic())

    def turn(self, name: str, step: int, cost: float, command: str) -> None:
        """See `attempt_run.Watcher`."""
        with self._lock:
            if found := self._now.get(name):
                found.state, found.step, found.cost = "acting", step, cost
                found.command = command or found.command

    def grading(self, name: str) -> None:
        """Called when the grading of the attempt's patch begins."""
        with self._lock:
            if found := self._now.get(name):
                found.state = "grading"

    def end(self, name: str, status: str) -> None:
        """Called when an attempt has ended."""
        with self._lock:
            self._now.pop(name, None)
            self.ends[status] = self.ends.get(status, 0) + 1

    def rows(self) -> list[tuple[str, str, int, str, str, str]]:
        """Returns (attempt, state, step, dollars, time, last command) of each running attempt, the oldest
        first."""
        with self._lock:
            attempts = sorted(self._now.items(), key=lambda pair: pair[1].began)
        now = time.monotonic()
        return [
            (
                name,
                each.state,
                each.step,
                f"{each.cost:.2f}" if each.cost else "",
                clock(now - each.began),
                shorten(each.command, SHOWN_COMMAND),
            )
            for name, each in attempts
        ]

    def words(self) -> str:
        """Returns the number of finished attempts, in total and by status."""
        with self._lock:
            ends = dict(self.ends)
        counts = ", ".join(f"{count} {status}" for status, count in sorted(ends.items(), key=lambda e: -e[1]))
        return f"{sum(ends.values())} of {self.total}" + (f": {counts}" if counts else "")


@contextmanager
def draw_table(running: Running) -> Iterator[None]:
    """Draws the table during the block if stderr is a terminal. Otherwise does nothing."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in (None, "", "dumb", "unknown"):
        yield
        return
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        yield
        return
    console = Console(file=sys.stderr)
    table = lambda: _table(running, console.height)  # noqa: E731
    with Live(get_renderable=table, console=console, refresh_per_second=2, transient=True):
        yield


def _table(running: Running, height: int) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = running.rows()
    room = max(1, height - 5)
    table = Table(box=None, pad_edge=False, expand=True)
    for title, options in (
        ("attempt", {"ratio": 3}),
        ("doing", {}),
        ("step", {"justify": "right"}),
        ("$", {"justify": "right"}),
        ("time", {"justify": "right"}),
        ("last command", {"ratio": 5}),
    ):
        table.add_column(title, no_wrap=True, overflow="ellipsis", **options)  # type: ignore[arg-type]
    for row in rows[:room]:
        table.add_row(*(Text(str(each)) for each in row))
    more = f", {len(rows) - room} more running" if len(rows) > room else ""
    return Group(table, Text(running.words() + more, no_wrap=True, overflow="ellipsis"))
