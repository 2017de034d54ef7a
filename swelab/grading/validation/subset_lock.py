"""Writes the lock of a subset: which tasks leak, which are valid, how strong each task's witness is."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from swelab.configs.kinds.subset import OwnSubset
from swelab.grading.grading_stage import Bench
from swelab.grading.run_cache import Archive
from swelab.grading.validation.validate_tasks import validate
from swelab.grading.witness_store import Guard, Witnesses, WitnessWriter
from swelab.jobs.journal import Journal
from swelab.records.task_records import Lock
from swelab.records.whole_files import atomic
from swelab.sandbox import Image, open_backend
from swelab.tasks.answer_leaks import find_leaks, refused_leaks
from swelab.tasks.checkout import RepoStore, scratch_folder
from swelab.tasks.task_rows import read_tasks


@dataclass(frozen=True)
class LockPlaces:
    """Paths of a subset's tasks, repository archives, stored runs, journal, and witness file, if any."""

    tasks: Path
    repos: Path
    runs: Path | None
    progress: Path
    witness: Path | None


def lock_subset(
    recipe: OwnSubset, at: LockPlaces, images: Mapping[str, Image], refused: Mapping[str, str], workers: int
) -> Lock:
    """Validates the tasks of a subset and returns its lock. Writes the witnesses of the tasks to
    `at.witness`.

    refused: maps the instance ids of tasks that must not be tried to a reason. Raises InputError if tasks are
    unusable or no task is kept. Raises Fault if runs were lost to infrastructure repeatedly.
    """
    settings, allows = recipe.validation, getattr(recipe.validation, "allow_leaks", True)
    with Journal(at.progress) as journal, scratch_folder() as scratch, _writer(at, recipe.guard) as writer:
        store, judges = RepoStore(at.repos, scratch), Witnesses(guard=recipe.guard)
        bench = Bench(store, backend := open_backend(), images, Archive(at.runs), judges)
        leaks = list(find_leaks(read_tasks(at.tasks), store, backend, images))
        unusable = {**refused, **({} if allows else refused_leaks(leaks))}
        lock = validate(read_tasks(at.tasks), settings, bench, journal, workers, unusable, writer)
    return Lock.of(lock | ({"leaks": leaks} if leaks else {}))


@contextmanager
def _writer(at: LockPlaces, guard: Guard) -> Iterator[WitnessWriter | None]:
    if at.witness is None:
        yield None
        return
    with atomic(at.witness) as stream, WitnessWriter(stream, guard) as writer:
        yield writer
