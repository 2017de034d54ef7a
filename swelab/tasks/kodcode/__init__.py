"""The task source `kodcode`: debugging tasks with a test file and a code file, without a known repair."""

from swelab.tasks.kodcode.kodcode_source import make_tasks

__all__ = ["make_tasks"]
