"""The attempts of an evaluation: each a rollout and, at once, its grade; resumable at either.

A rollout is journalled before it is graded: what was paid for is never paid twice, whatever is killed.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

from swelab.agents.agent import loop_of
from swelab.configs.experiment import scaffold_slice
from swelab.configs.kinds.scaffold import MiniLoop, SweAgentScaffold
from swelab.evaluation.actors import open_actors, watched
from swelab.evaluation.attempt_folders import AttemptFolders
from swelab.evaluation.evaluated import Evaluated, evaluated
from swelab.evaluation.evaluation_plan import Plan
from swelab.evaluation.running_table import Running, shown
from swelab.grading.grading_stage import Bench, grade_prediction, lost_grade
from swelab.grading.run_cache import Archive
from swelab.jobs.journal import Journal
from swelab.jobs.lost_instances import Losses
from swelab.jobs.shards import run_shard, shard_names
from swelab.models.billing.paid_turns import PaidRun
from swelab.models.policy_models import of_sample, weights_digest
from swelab.outcomes import RETRIED_ROLLOUTS, WAITING_ROLLOUTS
from swelab.records import InputError, Record, digest
from swelab.records.attempt_records import Grade, Prediction, Trajectory
from swelab.records.task_records import Task
from swelab.rollouts.rollout_stage import attempt_task, lost_rollout, rollout_key
from swelab.rollouts.swe_agent_rollouts import roll_out_batch
from swelab.sandbox import Backend, Image, open_backend
from swelab.sandbox.deferred import Deferred
from swelab.tasks.checkout import RepoStore, scratch_folder


@dataclass(frozen=True)
class Item:
    """One attempt: a task, and the number of the sample."""

    task: Task
    sample: int
    key: str

    @property
    def name(self) -> str:
        """What it is called on the terminal."""
        return f"{self.task.instance_id}#{self.sample}" if self.sample else self.task.instance_id


Rollouts = Callable[[Item], Trajectory]


@dataclass
class Kept:
    """The rollouts that are over, on disk. Thread-safe."""

    journal: Journal
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: str) -> Trajectory | None:
        """A rollout that is over; None where there is none."""
        return self.journal.record(key, Trajectory) if key in self.journal else None

    def put(self, key: str, trajectory: Trajectory) -> None:
        """Keeps a rollout; it is on disk when this returns."""
        with self._lock:
            self.journal.append({**trajectory, "key": key})


@dataclass
class Desk:
    """What the attempts of an evaluation share."""

    plan: Plan
    bench: Bench
    kept: Kept
    folders: AttemptFolders
    running: Running

    def evaluate(self, item: Item, roll_out: Rollouts) -> Evaluated:
        """One attempt, whose rollout is made unless it is kept. Raises ServiceRefused, ServingError."""
        began, name, unusable = time.monotonic(), item.task.instance_id, ""
        self.running.begin(item.name)
        trajectory = self.kept.get(item.key)
        try:
            if trajectory is None:
                trajectory = self.marked(roll_out(item))
                if trajectory.outcome not in RETRIED_ROLLOUTS | WAITING_ROLLOUTS:
                    self.kept.put(item.key, trajectory)
            self.running.grading(item.name)
            grade = self.grade(item, trajectory)
        except InputError as error:
            unusable = str(error)
            trajectory = trajectory or self.marked(lost_rollout(item.task, unusable))
            grade = lost_grade(item.task, trajectory.outcome, unusable)
        folder = self.folders.name(name, item.sample)
        seconds = time.monotonic() - began
        done = evaluated(trajectory, item.sample, grade, folder, seconds, final=bool(unusable))
        self.folders.write(trajectory, done)
        self.folders.append(done)
        self.running.end(item.name, done.outcome if done.is_paused else done.status)
        return done

    def grade(self, item: Item, trajectory: Trajectory) -> Grade | None:
        """The verdict on a rollout's patch; None where it waits for a higher budget. Raises InputError."""
        if trajectory.outcome in WAITING_ROLLOUTS:
            return None
        prediction = Prediction(
            instance_id=item.task.instance_id,
            model_name_or_path=self.plan.policy_name,
            model_patch=trajectory.model_patch,
            outcome=trajectory.outcome,
        )
        grade = grade_prediction(item.task, prediction, self.bench)
        mark = {"policy": self.plan.policy_name, "subset": self.plan.source.name}
        return grade | mark | ({"sample": item.sample} if item.sample else {})

    def recall(self, items: Sequence[Item], results: Journal) -> None:
        """What an earlier run left: folders keep their names, and what is over counts as that."""
        for item in items:
            if item.key in results:
                self.folders.keep(done := results.record(item.key, Evaluated))
                if not (done.is_lost or done.is_paused):
                    self.running.end(item.name, done.status)

    def marked(self, rollout: Mapping[str, object]) -> Trajectory:
        """A rollout with the names of the policy and the subset."""
        mark = {"policy": self.plan.policy_name, "subset": self.plan.source.name}
        return Trajectory.of({**rollout, **mark})


def attempts(
    plan: Plan, tasks: Sequence[Task], images: Mapping[str, Image], folders: AttemptFolders
) -> Iterator[Evaluated]:
    """The attempts of all samples at `tasks`, sample by sample in the tasks' order; see `run_shard`.

    images: by instance id, of the tasks that run in one. Raises what stops an evaluation: InputError (no
    archive), ServiceRefused, ServingError, BackendMissing; ShardLost when more than `plan.max_lost` were lost
    to infrastructure: what is journalled by then is read by `finished`.
    """
    backend, weights = open_backend(), weights_digest(plan.policy)
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        store = RepoStore(plan.repos, scratch / "repos")
        keys = Keys(plan, weights, images, store)
        items = [
            Item(task, sample, keys.of(task, sample)) for sample in range(plan.samples) for task in tasks
        ]
        deferred = stack.enter_context(Deferred(backend, most=plan.workers))
        results = stack.enter_context(Journal(plan.progress / "results.jsonl"))
        kept = Kept(stack.enter_context(Journal(plan.progress / "rollouts.jsonl")))
        archive = Archive(plan.progress / "runs")
        bench = Bench(RepoStore(plan.repos, scratch / "graded"), cast(Backend, deferred), images, archive)
        desk = Desk(plan, bench, kept, folders, Running(len(items)))
        desk.recall(items, results)

        @contextmanager
        def at_work() -> Iterator[Callable[[Item], Evaluated]]:
            opened = _program if isinstance(plan.scaffold, SweAgentScaffold) else _loop
            todo = [item for item in items if kept.get(item.key) is None]
            with opened(plan, desk, keys, todo, backend, scratch) as roll_out, shown(desk.running):
                yield lambda item: desk.evaluate(item, roll_out)

        yield from run_shard(
            [(item.key, item) for item in items],
            at_work,
            results,
            workers=plan.workers,
            label=f"evaluate {plan.policy_name}",
            kind=Evaluated,
            is_lost=lambda done: done.is_lost,
            is_good=lambda done: bool(done.grade and done.grade.resolved),
            is_paused=lambda done: done.is_paused,
            losses=Losses(
                plan.max_lost, lambda done: done.reason or done.outcome, plan.policy_name, "attempts"
            ),
        )
        for item in items:
            if item.key in kept.journal:
                keys.paid(item.sample).discard(item.key)


def finished(plan: Plan) -> list[Evaluated]:
    """What the journal of an evaluation holds: of each attempt the newest record."""
    path = plan.progress / "results.jsonl"
    if not path.is_file():
        return []
    with Journal(path) as journal:
        return [journal.record(key, Evaluated) for key in journal]


@dataclass
class Keys:
    """Keys of the rollouts, and where their paid turns are kept."""

    plan: Plan
    weights: str
    images: Mapping[str, Image]
    store: RepoStore

    @cached_property
    def settings(self) -> Record:
        """Every setting of the scaffold, as plain values."""
        scaffold = self.plan.scaffold
        if isinstance(scaffold, SweAgentScaffold):
            return scaffold_slice(scaffold)
        return loop_of(scaffold).plain()

    def of(self, task: Task, sample: int) -> str:
        """Hash of all that an attempt's rollout depends on. Raises InputError (no such archive)."""
        image = self.images.get(task.instance_id)
        place = image.digest if image else self.store.digest(task)
        policy = of_sample(self.plan.policy, sample)
        key = rollout_key(task, policy, self.settings, self.weights, place)
        return digest([key, sample]) if sample else key

    def paid(self, sample: int) -> PaidRun:
        """The paid turns of a sample; all samples have one bill."""
        return PaidRun(self.plan.progress / "paid", lambda task: self.of(task, sample))


@contextmanager
def _loop(
    plan: Plan, desk: Desk, keys: Keys, todo: list[Item], backend: Backend, scratch: Path
) -> Iterator[Rollouts]:
    """Rollouts in our own loop; a model is opened only when some are left."""
    loop: MiniLoop = loop_of(plan.scaffold)
    with ExitStack() as stack:
        log = plan.progress / "server.log"
        opened = open_actors(plan.policy, plan.policy_name, loop, plan.samples, log, keys.paid)
        actor = stack.enter_context(opened) if todo else None

        def roll_out(item: Item) -> Trajectory:
            assert actor, "every rollout that is left was known before"
            model_for = lambda task: watched(actor(task, item.sample), item.name, desk.running)  # noqa: E731
            found = attempt_task(item.task, model_for, keys.store, backend, loop, scratch, keys.images)
            return Trajectory.of(found)

        yield roll_out


@contextmanager
def _program(
    plan: Plan, desk: Desk, keys: Keys, todo: list[Item], backend: Backend, scratch: Path
) -> Iterator[Rollouts]:
    """Rollouts by SWE-agent: a batch for each sample, before the first is graded."""
    assert isinstance(plan.scaffold, SweAgentScaffold)
    made: dict[str, Trajectory] = {}
    for sample, shard in enumerate(shard_names(1, range(plan.samples))):
        mine = [item for item in todo if item.sample == sample]
        rows = roll_out_batch(
            [item.task for item in mine],
            policy_name=plan.policy_name,
            policy=of_sample(plan.policy, sample),
            scaffold=plan.scaffold,
            subset=plan.source.name,
            shard=shard,
            images_path=plan.images,
            progress=plan.progress / f"{shard}.jsonl",
            workers=plan.workers,
        )
        made |= {item.key: row for item, row in zip(mine, rows, strict=True)} if mine else {}
    yield lambda item: made[item.key]
