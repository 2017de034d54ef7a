"""The registry of the sources of repositories and of tasks."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path

from swelab.configs.kinds.repo import Repo
from swelab.configs.kinds.subset import DatasetSubset, DrillSubset, ForgeSubset, OwnSubset, Subset, repos_of
from swelab.records import InputError
from swelab.records.task_records import Task
from swelab.sandbox import Backend
from swelab.tasks.criteria import read_ratings
from swelab.tasks.hidden_tests import hide_tests
from swelab.tasks.task_rows import read_tasks

TaskStream = tuple[Iterable[Task], dict[str, int]]
"""Task rows, and the number of dropped candidates for each reason."""


def build_repo(recipe: Repo, cache_dir: Path) -> bytes:
    """Returns the repository archive of a recipe. Raises InputError."""
    if recipe.source == "drill":
        from swelab.tasks import drill_archive

        return drill_archive.build_repo(recipe)
    if recipe.source == "harbor":
        from swelab.tasks import harbor

        return harbor.build_repo(recipe)
    from swelab.tasks import forge

    return forge.build_repo(recipe, cache_dir)


def make_tasks(
    recipe: OwnSubset,
    repos_dir: Path,
    progress: Path,
    workers: int,
    open_backend: Callable[[], Backend],
    statuses: Callable[[str, str], dict[str, str]],
    exclude: Sequence[Path] = (),
    ratings: Path | None = None,
    usable: Callable[[Task], object] = lambda task: None,
) -> TaskStream:
    """Returns the task rows of a subset recipe. Only a source that runs tests opens the backend.

    statuses: function that maps (log, parser name) to the status of each test id. exclude: subset JSONs. A
    published row is excluded if it is the same as one of their tasks (see `identity`). ratings: file with the
    difficulty of published rows. usable: function that raises InputError for an external row whose tests
    cannot run here. Raises InputError, SandboxError.
    """
    if recipe.source == "kodcode":
        from swelab.tasks import kodcode

        return kodcode.make_tasks(recipe, open_backend, progress, workers)
    tars = archives(recipe, repos_dir)
    stream: TaskStream
    if recipe.source == "harbor":
        from swelab.tasks import harbor

        stream = harbor.make_tasks(recipe, tars, usable)
    else:
        stream = _make(recipe, tars, progress, workers, open_backend, statuses, exclude, ratings)
    rows, drops = stream
    return (hide_tests(rows, drops) if recipe.tests == "hidden" else rows), drops


def _make(
    recipe: ForgeSubset | DrillSubset | DatasetSubset,
    tars: dict[str, Path],
    progress: Path,
    workers: int,
    open_backend: Callable[[], Backend],
    statuses: Callable[[str, str], dict[str, str]],
    exclude: Sequence[Path],
    ratings: Path | None,
) -> TaskStream:
    if recipe.source == "dataset":
        from swelab.tasks import datasets_source

        others = chain.from_iterable(map(read_tasks, exclude))
        rated = read_ratings(ratings) if ratings else None
        return datasets_source.make_tasks(recipe, excluded=others, ratings=rated)
    if recipe.source == "drill":
        from swelab.tasks import drill

        return drill.make_tasks(recipe, tars, open_backend(), progress, workers)
    from swelab.tasks import forge

    return forge.make_tasks(recipe, tars, open_backend(), progress, workers, statuses)


def archives(recipe: Subset, repos_dir: Path) -> dict[str, Path]:
    """Maps each repository that a subset names to its archive. Raises InputError if an archive is missing."""
    found = {name: repos_dir / f"{name}.tar" for name in repos_of(recipe)}
    for path in found.values():
        if not path.is_file():
            raise InputError("no such repository archive", path, "build_repo to have run")
    return found
