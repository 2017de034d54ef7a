"""Debugging tasks of a file of tests and a file of code, without a repair, as a source of task rows."""

from swelab.tasks.kodcode.kodcode_source import make_tasks

__all__ = ["make_tasks"]
