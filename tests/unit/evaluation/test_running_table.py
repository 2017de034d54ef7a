"""The table of running attempts at the bottom of a terminal: step, cost and last command of each."""

import io

from rich.console import Console

from swelab.evaluation.running_table import Running, _table


def drawn(running, height=20, width=120):
    console = Console(file=io.StringIO(), width=width, height=height)
    console.print(_table(running, height))
    return console.file.getvalue()


def test_each_running_attempt_has_a_line():
    running = Running(4)
    for name in ("django-1", "django-2#1", "flask-3"):
        running.begin(name)
    running.turn("django-1", 1, 0.02, "ls")
    running.turn("django-1", 2, 0.05, "grep -rn 'x' src\nls")
    running.turn("django-1", 3, 0.11, "")  # a response without a command
    running.grading("django-2#1")
    running.end("flask-3", "resolved")
    first, second, third, last = drawn(running).splitlines()
    assert first.split() == ["attempt", "doing", "step", "$", "time", "last", "command"]
    assert second.split()[:4] == ["django-1", "acting", "3", "0.11"] and "grep -rn 'x' src" in second
    assert third.split()[:3] == ["django-2#1", "grading", "0"]
    assert last.strip() == "1 of 4: 1 resolved"
