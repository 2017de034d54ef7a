"""Reads task folders of Harbor, the framework of Terminal-Bench 2, as task rows (docs/harbor.md)."""

from swelab.tasks.harbor.harbor_archives import build_repo
from swelab.tasks.harbor.harbor_source import make_tasks

__all__ = ["build_repo", "make_tasks"]
