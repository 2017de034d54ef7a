"""Makes tasks (the forge) by mutating the syntax tree of a real package with a real test suite."""

from swelab.tasks.forge.archive import build_repo
from swelab.tasks.forge.rows import make_tasks

__all__ = ["build_repo", "make_tasks"]
