"""A source of task rows: debugging tasks that consist of a test file and a code file, without a repair."""

from swelab.tasks.kodcode.kodcode_source import make_tasks

__all__ = ["make_tasks"]
