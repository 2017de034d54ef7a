"""The rollout stage: a policy on a shard of tasks, each in a sandbox of its own."""

import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from swelab.agents.mini import LOST, run_rollout
from swelab.journal import Journal
from swelab.models.policy import open_policy, weights_digest
from swelab.recorded import import_recordings
from swelab.records import InputError, Record, digest
from swelab.sandbox import Backend, Image, Limits, SandboxError, open_backend
from swelab.shards import belongs_to, in_shard, run_shard
from swelab.tasks.checkout import RepoStore, git, scratch_folder
from swelab.tasks.history import HistoryRefused, prepare
from swelab.tasks.images import task_images
from swelab.trajectory_files import recordings


def rollout_key(task: Record, policy: Record, scaffold: Record, weights: str, repo: str) -> str:
    """Hash of all that a rollout depends on; `shards` and `job` change no result."""
    policy = {name: value for name, value in policy.items() if name not in ("shards", "job")}
    return digest([task, policy, scaffold, weights, repo])


def roll_out(
    tasks: list[Record],
    *,
    policy_name: str,
    policy: Record,
    scaffold: Record,
    subset: str,
    shard: str,
    repos_dir: Path,
    progress: Path,
    workers: int,
    images_path: Path | None = None,
) -> Iterator[Record]:
    """Trajectory records of the tasks in `shard`, in their order. A model server runs only for work left.

    images_path: record of the images that tasks without a repository archive run in. Raises InputError
    (bad tasks, weights, archives, images missing or telling answers), BackendMissing, ServingError.
    """
    images = task_images(mine := in_shard(tasks, shard), images_path)
    backend = open_backend()
    with Journal(progress) as journal, scratch_folder() as scratch:
        store = RepoStore(repos_dir, scratch / "repos")
        weights = weights_digest(policy)
        keyed = [
            (
                rollout_key(task, policy, scaffold, weights, image.digest if image else store.digest(task)),
                task,
            )
            for task, image in ((task, images.get(task["instance_id"])) for task in mine)
        ]

        place = RolloutPlace(policy_name, policy, scaffold, subset, repos_dir.absolute(), images)

        @contextmanager
        def open_work() -> Iterator[Callable[[Record], Record]]:
            log = progress.with_suffix(".server.log")
            with open_policy(policy, policy_name, scaffold, log) as model_for:
                yield place.work(model_for, store, backend, scratch)

        yield from run_shard(
            keyed,
            open_work,
            journal,
            workers=workers,
            label=f"rollout {policy_name} {subset}",
            is_lost=place.is_lost,
            is_good=lambda record: record["outcome"] == "submitted",
            place=place,
        )


@dataclass(frozen=True)
class RolloutPlace:
    """Rollouts of one policy on a subset, wherever they run; see `ray_workers.Place`."""

    policy_name: str
    policy: Record
    scaffold: Record
    subset: str
    repos_dir: Path
    images: Mapping[str, Image]

    @property
    def variables(self) -> tuple[str, ...]:
        """The variable that holds the policy's key, if it names one."""
        return tuple(filter(None, [self.policy.get("api_key_env")]))

    def work(
        self, model_for: Callable[[Record], object], store: RepoStore, backend: Backend, scratch: Path
    ) -> Callable[[Record], Record]:
        """The function from a task to its trajectory."""
        return lambda task: {
            **attempt(task, model_for, store, backend, self.scaffold, scratch, self.images),
            "policy": self.policy_name,
            "subset": self.subset,
        }

    @contextmanager
    def open(self, count: int) -> Iterator[Callable[[Record], Record]]:
        """Rollouts in this process alone. Raises InputError (a policy whose server is of another process)."""
        if self.policy["kind"] == "checkpoint" and not self.policy.get("endpoint"):
            where = f"policy {self.policy_name}"
            raise InputError("each host would serve it anew", where, "an endpoint that all hosts reach")
        with (
            scratch_folder() as scratch,
            open_policy(self.policy, self.policy_name, self.scaffold, scratch / "server.log") as model_for,
        ):
            yield self.work(model_for, RepoStore(self.repos_dir, scratch / "repos"), open_backend(), scratch)

    def is_lost(self, record: Record) -> bool:
        """Whether a rollout was lost to its infrastructure."""
        return record["outcome"] in LOST

    def lost(self, item: Record, reason: str) -> Record:
        """The record of a rollout whose hosts were lost."""
        return lost(item, reason) | {"policy": self.policy_name, "subset": self.subset}


def recorded(names: list[str], *, policy_name: str, folder: str, subset: str, shard: str) -> Iterator[Record]:
    """Trajectory records of the instances in `shard`, from a folder where they were recorded elsewhere.

    Says on standard error what is refused, and why. Raises InputError when no recording is of a
    task of the subset.
    """
    found = recordings(folder)
    mine = list(filter(belongs_to(shard), names))
    others = sorted(found.keys() - set(names))
    if len(others) == len(found):
        text = f"none of its {len(found)} trajectories, such as {others[0]}, is of a task of the subset"
        raise InputError(text, folder, "files named after instances")
    counts: Counter[str] = Counter()
    for record, refusal in import_recordings(mine, found):
        missing = record["outcome"] == "not_recorded"
        counts["refused" if refusal else "not recorded" if missing else "taken"] += 1
        if refusal:
            print(f"refused: {refusal}", file=sys.stderr)
        yield {**record, "policy": policy_name, "subset": subset}
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none"
    rest = f"; {len(others)} recordings of no task of the subset, such as {others[0]}" if others else ""
    print(f"{folder}: of {len(mine)} tasks {told}{rest}", file=sys.stderr)


def attempt(
    task: Record,
    model_for: Callable[[Record], object],
    store: RepoStore,
    backend: Backend,
    scaffold: Record,
    scratch: Path,
    images: Mapping[str, Image] = MappingProxyType({}),
) -> Record:
    """One rollout in a fresh checkout and sandbox. Raises InputError when the task is unusable."""
    limits = Limits(**scaffold["limits"])
    if image := images.get(task["instance_id"]):
        try:
            with backend.start(None, image=image, limits=limits) as sandbox:
                return run_rollout(task, model_for(task), sandbox, prepare(sandbox, task), scaffold)
        except (SandboxError, HistoryRefused) as error:
            return lost(task, str(error))
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        tree = Path(folder) / "tree"
        store.checkout(task, tree)
        base = git(tree, "rev-parse", "HEAD").stdout.decode().strip()
        try:
            with backend.start(tree, limits=limits) as sandbox:
                return run_rollout(task, model_for(task), sandbox, base, scaffold)
        except SandboxError as error:
            return lost(task, str(error))


def lost(task: Record, reason: str) -> Record:
    """The record of a rollout whose sandbox never came up."""
    return {
        "instance_id": task["instance_id"],
        "outcome": "sandbox_lost",
        "model_patch": "",
        "messages": [],
        "info": {"exit_status": "SandboxLost", "submission": "", "reason": reason},
        "trajectory_format": "mini-swe-agent-1.1",
    }
