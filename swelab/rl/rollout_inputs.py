"""Inputs of a training's rollouts, and the grader that works on them."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from swelab.grading.grading_stage import Bench
from swelab.grading.run_cache import Archive
from swelab.grading.witness_store import Witnesses
from swelab.records.task_records import Task
from swelab.sandbox import Backend, Image, open_backend
from swelab.sandbox.deferred import Deferred
from swelab.tasks.checkout import RepoStore, scratch_folder


@dataclass(frozen=True)
class Reads:
    """Inputs of a training: tasks to learn from, tasks for validation, their images and repositories."""

    tasks: Sequence[Task]
    repos_dir: Path
    held_out: Sequence[Task] = ()
    images: Mapping[str, Image] = field(default_factory=dict)
    witness: Sequence[Path] = ()


@contextmanager
def open_bench(reads: Reads, folder: Path, at_once: int) -> Iterator[tuple[Bench, Path]]:
    """Opens the grader, with sandboxes for `at_once` rollouts, and a folder that is deleted at the end.

    folder: the run's folder; results of tested patches are cached there. Raises BackendMissing, InputError.
    """
    with scratch_folder() as scratch, Deferred(open_backend(), most=at_once) as backend:
        store = RepoStore(reads.repos_dir, scratch / "repos")
        archive, witnesses = Archive(folder / "runs"), Witnesses(*reads.witness)
        yield Bench(store, cast(Backend, backend), dict(reads.images), archive, witnesses), scratch
