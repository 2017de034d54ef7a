"""The inputs of a training run's rollouts, and their grader."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from swelab.grading.grading_stage import Bench
from swelab.grading.run_cache import Archive
from swelab.grading.witness_store import Witnesses
from swelab.records.task_records import Task
from swelab.rl.rewards import SHARES
from swelab.sandbox import Backend, Image, open_backend
from swelab.sandbox.deferred import DeferredBackend
from swelab.tasks.checkout import RepoStore, scratch_folder


@dataclass(frozen=True)
class Reads:
    """The inputs of a training run.

    tasks: the training tasks. held_out: the validation tasks. repos_dir: folder of repository archives.
    images: maps a task's id to its image. witness: witness files for the grader.
    """

    tasks: Sequence[Task]
    repos_dir: Path
    held_out: Sequence[Task] = ()
    images: Mapping[str, Image] = field(default_factory=dict)
    witness: Sequence[Path] = ()


@contextmanager
def open_bench(reads: Reads, folder: Path, at_once: int, reward: str) -> Iterator[tuple[Bench, Path]]:
    """Yields a grader with sandboxes for `at_once` concurrent rollouts, and a temporary folder.

    folder: the run's folder, which caches the results of tested patches. reward: a name in REWARDS. Raises
    BackendMissing, InputError.
    """
    with scratch_folder() as scratch, DeferredBackend(open_backend(), most=at_once) as backend:
        store = RepoStore(reads.repos_dir, scratch / "repos")
        archive, witnesses = Archive(folder / "runs"), Witnesses(*reads.witness)
        shares = reward in SHARES
        yield Bench(store, cast(Backend, backend), dict(reads.images), archive, witnesses, shares), scratch
