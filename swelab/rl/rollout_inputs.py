"""The inputs of a training run's rollouts, and their grader."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from swelab.configs.kinds.rl import Validation as RecipeValidation
from swelab.grading.grading_stage import Bench
from swelab.grading.run_cache import Archive
from swelab.grading.witness_store import Witnesses
from swelab.records import digest, sha256_file
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

    def files_behind(self, tasks: Sequence[Task]) -> dict[str, list[str]]:
        """Maps the id of each task to the hashes of the files on which its rollouts and verdicts depend: its
        image or its repository's archive, and its witness. A file that does not exist has the hash ""."""
        witnesses = Witnesses(*(path for path in self.witness if path.is_file()))
        names = {task.repo_recipe for task in tasks if task.repo_recipe and not task.files}
        archives = {name: self.repos_dir / f"{name}.tar" for name in names}
        code = {name: sha256_file(path) for name, path in archives.items() if path.is_file()}
        hashes = dict[str, list[str]]()
        for task in tasks:
            image = self.images.get(task.instance_id)
            place = image.digest if image else "" if task.files else code.get(task.repo_recipe or "", "")
            hashes[task.instance_id] = [place, witnesses.digest(task.instance_id)]
        return hashes


def validation_name(settings: RecipeValidation, reads: Reads) -> str:
    """Returns the name of the folder of a run's validations, a digest of the temperature, of the tasks and of
    the files behind them."""
    tasks = reads.held_out[: settings.limit or None]
    return digest([settings.temperature, list(tasks), reads.files_behind(tasks)])[:16]


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
