"""Changes how Snakemake records finished jobs.

Snakemake decides from these records what to run again. Outputs that cost money are flagged `update`.
Snakemake leaves them in place, and their script replaces them completely. Without this module, Snakemake
would copy them before each job (including 65 GB of weights). After a failure it would record the old outputs
as made by the new recipe.
"""

import ast
from collections import deque
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import snakemake.api  # noqa: F401  Snakemake's modules import each other, and only this order works
from snakemake.dag import DAG
from snakemake.persistence import FileBackupMixin, ParamsChange, PersistenceBase
from snakemake.persistence.file import FilePersistence


@cache
def as_value(text: str) -> str:
    """Returns a parameter's text in a form that is equal for equal values."""
    try:
        return repr(_in_order(ast.literal_eval(text)))
    except (ValueError, SyntaxError):  # for a parameter that is no literal
        return text


def _in_order(value: Any) -> Any:
    if isinstance(value, dict):
        pairs = ((_in_order(key), _in_order(each)) for key, each in value.items())
        return dict(sorted(pairs, key=repr))
    if isinstance(value, list | tuple):
        return type(value)(map(_in_order, value))
    return int(value) if isinstance(value, float) and value.is_integer() else value


PLACES = frozenset({"results/images/sandbox/image.json"})
"""Inputs that only determine where a job runs. Outputs do not depend on them."""


def keep_paid_outputs() -> None:
    """Makes Snakemake leave outputs flagged `update` unchanged when a job starts and when it fails."""
    backups = set[str]()
    write = FilePersistence._write_record

    def begin(self: Any, path: Path) -> None:
        """Replaces Snakemake's backup of an output, and the removal of the backup. Makes no copy."""
        backups.discard(path.as_posix())

    def keep(self: Any, path: Path) -> bool:
        """Replaces the restoration of the backup. Returns whether the output still exists."""
        if path.exists():
            backups.add(path.as_posix())
        return path.exists()

    def remember(self: Any, key: str, record: Any) -> None:
        """Writes the record of an output, unless a failed job left the old output in place."""
        if key not in backups:
            write(self, key, record)

    FileBackupMixin.backup_output = FileBackupMixin.cleanup_backup = begin
    FileBackupMixin.restore_output = keep
    FilePersistence._write_record = remember


def forget_places() -> None:
    """Makes Snakemake leave PLACES out of the inputs that it records and compares."""
    inputs = PersistenceBase._input

    @lru_cache
    def without(self: Any, job: Any) -> list[str]:
        """Returns the inputs that Snakemake records for a job, without PLACES."""
        return [path for path in inputs(self, job) if path not in PLACES]

    PersistenceBase._input = without


def ask_manifests(digest: Callable[[str], str]) -> None:
    """Makes Snakemake use manifests for jobs without a record, such as after `.snakemake` was removed.

    digest: returns why the file at a path is out of date, such as a changed recipe, or "" if it is not.
    """
    remembers, changed = PersistenceBase.has_metadata, PersistenceBase.params_changed
    against = cache(lambda job: digest(str(job.output[0])) if job.output else "")

    def has_metadata(self: Any, job: Any) -> bool:
        """Also returns True if there is no record but the manifest shows that the output is out of date."""
        return remembers(self, job) or bool(against(job))

    def params_changed(self: Any, job: Any, file: Any = None) -> Any:
        """Returns the changes that the manifest shows, if there is no record."""
        if remembers(self, job) or not against(job):
            return changed(self, job, file)
        return ParamsChange(only_new={against(job)}, files=set(map(str, job.output)))

    PersistenceBase.has_metadata = has_metadata
    PersistenceBase.params_changed = params_changed


def compare_values() -> None:
    """Makes Snakemake compare the parameters of jobs as values. It compares their text, in which the order of
    keys and the difference of 1 and 1.0 count."""
    now, recorded = PersistenceBase._params, PersistenceBase.params

    @lru_cache
    def of_job(self: Any, job: Any) -> list[str]:
        return sorted(map(as_value, now(self, job)))

    def of_record(self: Any, path: Any) -> list[str] | None:
        known = recorded(self, path)
        return None if known is None else sorted(map(as_value, known))

    PersistenceBase._params, PersistenceBase.params = of_job, of_record


def look_behind_ancient_files() -> None:
    """Makes Snakemake check a job for changes even if only `ancient` files connect it to a job that runs.

    An `ancient` file makes no job run again. But Snakemake skipped every check of such a job. If the check
    before a training had to run, a new learning rate was not noticed.
    """
    walk = DAG.bfs

    def bfs(self: Any, direction: Any, *jobs: Any, **stop: Any) -> Iterator[Any]:
        """Walks from jobs to the jobs that depend on them by a file that is not `ancient`."""
        if direction is not self.depending or self.omitrules or self.omitfiles:
            yield from walk(self, direction, *jobs, **stop)
            return
        queue, seen = deque(jobs), set(jobs)
        while queue:
            yield (job := queue.popleft())
            for after, files in direction[job].items():
                if after not in seen and not all(file.is_ancient for file in files):
                    seen.add(after)
                    queue.append(after)

    DAG.bfs = bfs
