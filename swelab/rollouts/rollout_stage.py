"""The rollout stage: a policy attempts the tasks of a shard, each task in its own sandbox."""

import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from swelab.agents.agent import loop_of, open_agent
from swelab.configs.experiment import key_variables, rollout_slice, service_of
from swelab.configs.kinds.policy import Policy
from swelab.configs.kinds.scaffold import MiniLoop, Scaffold
from swelab.jobs.journal import Journal
from swelab.jobs.lost_instances import Losses
from swelab.jobs.resumable_run import run_shard
from swelab.jobs.shards import belongs_to, in_shard, sample_of
from swelab.models import BudgetSpent
from swelab.models.billing.paid_turns import PaidRun
from swelab.models.chat.scripted import read_repairs, with_repair
from swelab.models.model_values import with_model_values
from swelab.models.policy_models import ModelFor, open_policy, weights_digest
from swelab.outcomes import RETRIED_ROLLOUTS, WAITING_ROLLOUTS, RolloutEnd
from swelab.records import InputError, Record, digest
from swelab.records.attempt_records import Rollout, Trajectory
from swelab.records.task_records import Task
from swelab.rollouts.recorded_trajectories import import_recordings, no_rollout
from swelab.rollouts.trajectory_files import one_run, recordings
from swelab.sandbox import Backend, Image, Limits, SandboxError, open_backend
from swelab.tasks.checkout import RepoStore, scratch_folder
from swelab.tasks.image_history import HistoryRefused, prepare
from swelab.tasks.patch_application import git
from swelab.tasks.task_images import task_images

EXIT_STATUS = {RolloutEnd.SANDBOX_LOST: "SandboxLost", RolloutEnd.BUDGET_SPENT: "BudgetSpent"}


def rollout_key(task: Task, policy: Policy, scaffold: Record, weights: str, repo: str) -> str:
    """Returns a hash of everything that a rollout depends on. task: the task as the policy sees it, with the
    repair from the policy's recipe if there is one. scaffold: all settings of the agent, as plain values."""
    return digest([task, rollout_slice(policy), scaffold, weights, repo])


def roll_out(
    tasks: list[Task],
    *,
    policy_name: str,
    policy: Policy,
    scaffold: Scaffold,
    subset: str,
    shard: str,
    repos_dir: Path,
    progress: Path,
    workers: int,
    images_path: Path | None = None,
) -> Iterator[Trajectory]:
    """Yields the trajectories of the tasks in `shard`, in order. A model server starts only if a task is
    unfinished.

    images_path: record of images, for tasks without a repository archive. A hosted model's paid turns are
    kept in `paid/`, next to the journal `progress`. Raises InputError for unusable tasks, weights or
    archives, and for images that are missing or show the answer. Raises BackendMissing, ServingError, and
    ShardLost if more rollouts were lost than the policy's `max_lost`. Raises BudgetSpent, at the latest after
    the last record.
    """
    policy = with_model_values(policy)
    images = task_images(mine := in_shard(tasks, shard), images_path)
    backend = open_backend()
    with Journal(progress) as journal, scratch_folder() as scratch:
        store = RepoStore(repos_dir, scratch / "repos")
        weights = weights_digest(policy)
        folders = (repos_dir.absolute(), progress.absolute().parent / "paid")
        named = (policy_name, policy, loop_of(scaffold), subset, weights)
        place = RolloutPlace(*named, images, *folders, read_repairs(policy))
        keyed = [(place.key(task, store), task) for task in mine]
        rows = run_shard(
            keyed,
            lambda: place.at_work(store, backend, scratch, progress.with_suffix(".server.log")),
            journal,
            workers=workers,
            label=f"rollout {policy_name} {subset}",
            is_lost=place.is_lost,
            is_good=lambda record: record.outcome == RolloutEnd.SUBMITTED,
            kind=Trajectory,
            place=place,
            is_paused=place.is_paused,
            is_refused=lambda record: record.outcome == RolloutEnd.MODEL_REFUSED,
            losses=rollout_losses(policy, policy_name),
        )
        yield from final(keyed, rows, place, place.paid_run(store))


def final(
    keyed: list[tuple[str, Task]], rows: Iterator[Trajectory], place: "RolloutPlace", paid: PaidRun
) -> Iterator[Trajectory]:
    """Yields the trajectories in `rows` unchanged, and deletes the paid turns of each finished rollout.
    Raises BudgetSpent after the last trajectory if some rollouts wait for a higher budget."""
    reasons = []
    for (key, _), row in zip(keyed, rows, strict=True):
        if place.is_paused(row):
            reasons.append(row.info["reason"])
        elif not place.is_lost(row):
            paid.discard(key)
        yield row
    if reasons:
        raise out_of_budget(reasons[0], len(reasons), len(keyed), place.policy_name, "paid")


def rollout_losses(policy: Policy, name: str) -> Losses[Trajectory]:
    """Returns a counter that limits the lost rollouts of a shard. Its messages name the service and the
    reason."""

    def reason_of(record: Trajectory) -> str:
        where = f" at {service_of(policy)}" if record.outcome in OF_MODEL else ""
        return f"{record.outcome}{where}: {record.info.get('reason') or 'no reason given'}"

    return Losses(policy.max_lost or 0, reason_of, name, "rollouts")


def out_of_budget(reason: str, unpaid: int, total: int, policy: str, place: str) -> BudgetSpent:
    """Returns the error for a shard with `unpaid` rollouts that need a higher budget. place: a word for the
    message, which says what is kept."""
    return BudgetSpent(
        f"{reason}; {unpaid} of {total} rollouts of this shard are left: raise budget_dollars"
        f" of policy {policy} and run the same command; what is {place} is kept"
    )


OF_MODEL = (RolloutEnd.MODEL_LOST, RolloutEnd.MODEL_REFUSED)
"""Ends for which the model's service is the cause."""


@dataclass(frozen=True)
class RolloutPlace:
    """Makes the rollouts of one policy on a subset, on any machine; see `ray_workers.Place`. repairs: maps
    instance ids to the repairs in a scripted policy's recipe."""

    policy_name: str
    policy: Policy
    scaffold: MiniLoop
    subset: str
    weights: str
    images: Mapping[str, Image]
    repos_dir: Path
    paid_folder: Path
    repairs: Mapping[str, str] = field(default_factory=dict)

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables with the policy's API keys."""
        return tuple(key_variables(self.policy))

    def key(self, task: Task, store: RepoStore) -> str:
        """Returns the key of a task's rollout. Raises InputError if there is no archive."""
        image = self.images.get(task.instance_id)
        place = image.digest if image else store.digest(task)
        shown = with_repair(task, self.repairs)
        return rollout_key(shown, self.policy, self.scaffold.plain(), self.weights, place)

    def paid_run(self, store: RepoStore) -> PaidRun:
        """Returns the paid turns of this policy's rollouts, which are kept on disk."""
        return PaidRun(self.paid_folder, lambda task: self.key(task, store))

    @contextmanager
    def at_work(
        self, store: RepoStore, backend: Backend, scratch: Path, log: Path
    ) -> Iterator[Callable[[Task], Trajectory]]:
        """Yields a function from a task to its trajectory. log: path of the log of the model server, if one
        is needed."""
        named = (self.policy, self.policy_name, self.scaffold, log, self.paid_run(store))
        loop = (self.scaffold, scratch, self.images)
        with open_policy(*named) as model_for:
            yield lambda task: self.with_names(attempt_task(task, model_for, store, backend, *loop))

    def with_names(self, rollout: Rollout) -> Trajectory:
        """Returns a rollout with the names of this policy and subset."""
        return Trajectory.of({**rollout, "policy": self.policy_name, "subset": self.subset})

    @contextmanager
    def open(self, count: int) -> Iterator[Callable[[Task], Trajectory]]:
        """Like `at_work`, on a host of a cluster. Raises InputError for a checkpoint without an endpoint."""
        if self.policy.kind == "checkpoint" and not self.policy.endpoint:
            where = f"policy {self.policy_name}"
            raise InputError(
                "each host would start its own model server", where, "an endpoint that all hosts reach"
            )
        with scratch_folder() as scratch:
            store = RepoStore(self.repos_dir, scratch / "repos")
            with self.at_work(store, open_backend(), scratch, scratch / "server.log") as work:
                yield work

    def is_lost(self, record: Trajectory) -> bool:
        """Returns whether a rollout was lost to infrastructure."""
        return record.outcome in RETRIED_ROLLOUTS

    def is_paused(self, record: Trajectory) -> bool:
        """Returns whether a rollout waits for a higher budget."""
        return record.outcome in WAITING_ROLLOUTS

    def lost_record(self, item: Task, reason: str) -> Trajectory:
        """Returns the record of a rollout whose hosts were lost."""
        return self.with_names(lost_rollout(item, reason))


def recorded_trajectories(
    names: list[str], *, policy_name: str, folder: str, subset: str, shard: str, runs: int = 1
) -> Iterator[Trajectory]:
    """Yields the trajectories of the instances in `shard`, from a folder with recordings of other programs.

    With several `runs`, only the run whose number is the shard's sample is used. Refused recordings are
    printed to standard error, with reasons. Raises InputError if no recording belongs to a task of the
    subset, or if the folder has another number of runs.
    """
    paths = recordings(folder)
    if runs > 1:
        paths = one_run(paths, folder, runs, sample_of(shard))
    mine = list(filter(belongs_to(shard), names))
    others = sorted(paths.keys() - set(names))
    if len(others) == len(paths):
        text = f"none of its {len(paths)} trajectories, such as {others[0]}, is of a task of the subset"
        raise InputError(text, folder, "files named after instances")
    counts: Counter[str] = Counter()
    for record, refusal in import_recordings(mine, paths):
        missing = record.outcome == RolloutEnd.NOT_RECORDED
        counts["refused" if refusal else "not recorded" if missing else "taken"] += 1
        if refusal:
            print(f"refused: {refusal}", file=sys.stderr)
        yield Trajectory.of({**record, "policy": policy_name, "subset": subset})
    told = ", ".join(f"{count} {what}" for what, count in sorted(counts.items())) or "none"
    rest = f"; {len(others)} recordings of no task of the subset, such as {others[0]}" if others else ""
    print(f"{folder}: of {len(mine)} tasks {told}{rest}", file=sys.stderr)


def attempt_task(
    task: Task,
    model_for: ModelFor,
    store: RepoStore,
    backend: Backend,
    scaffold: MiniLoop,
    scratch: Path,
    images: Mapping[str, Image] = MappingProxyType({}),
) -> Rollout:
    """Makes one rollout in a fresh checkout and sandbox. Raises InputError if the task is unusable.

    The rollout has its duration, unless the model is scripted: the same script gives the same bytes.
    """
    began = time.monotonic()
    try:
        model = model_for(task)
    except BudgetSpent as error:
        return lost_rollout(task, str(error), RolloutEnd.BUDGET_SPENT)
    agent, limits = open_agent(scaffold.agent), Limits(**scaffold.limits.plain())
    with closing(model), ExitStack() as stack:
        try:
            if image := images.get(task.instance_id):
                sandbox = stack.enter_context(backend.start(None, image=image, limits=limits))
                base = prepare(sandbox, task)
            else:
                tree = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=scratch))) / "tree"
                store.checkout(task, tree, for_agent=True)
                base = git(tree, "rev-parse", "HEAD").stdout.decode().strip()
                sandbox = stack.enter_context(backend.start(tree, limits=limits))
            model.form = agent.form(scaffold)
            rollout = agent.attempt(task, model, sandbox, base, scaffold)
        except (SandboxError, HistoryRefused) as error:
            rollout = lost_rollout(task, str(error))
    return rollout | ({"seconds": round(time.monotonic() - began, 3)} if model.timed else {})


def lost_rollout(task: Task, reason: str, end: RolloutEnd = RolloutEnd.SANDBOX_LOST) -> Rollout:
    """Returns the record of a rollout without a turn: its sandbox failed, or the budget was spent before it
    began."""
    return no_rollout(task.instance_id, end, EXIT_STATUS[end], reason)
