"""Runs the attempts of an evaluation. An attempt is a rollout and then its grade, and both can be resumed.

A rollout is written to a journal before it is graded. So a killed run never pays for a finished rollout
twice.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from swelab.agents.agent import loop_of
from swelab.configs.kinds.scaffold import MiniLoop, SweAgentScaffold
from swelab.evaluation.attempt_folders import AttemptFolders
from swelab.evaluation.attempt_keys import Item, Keys
from swelab.evaluation.attempt_models import open_attempt_models, watch
from swelab.evaluation.attempt_result import AttemptResult, attempt_result
from swelab.evaluation.evaluation_plan import Plan
from swelab.evaluation.running_table import Running, draw_table
from swelab.grading.grading_stage import Bench, grade_prediction, lost_grade
from swelab.grading.run_cache import Archive
from swelab.grading.witness_store import Witnesses
from swelab.jobs.journal import Journal
from swelab.jobs.lost_instances import Losses
from swelab.jobs.resumable_run import run_shard
from swelab.jobs.shards import shard_names
from swelab.models.policy_models import of_sample
from swelab.outcomes import RETRIED_ROLLOUTS, WAITING_ROLLOUTS
from swelab.records import InputError
from swelab.records.attempt_records import Grade, Prediction, Trajectory
from swelab.records.task_records import Task
from swelab.rollouts.own_eval import own_eval
from swelab.rollouts.rollout_stage import attempt_task, lost_rollout
from swelab.rollouts.swe_agent_rollouts import roll_out_batch
from swelab.sandbox import Backend, Image, open_backend
from swelab.sandbox.deferred import DeferredBackend
from swelab.tasks.checkout import RepoStore, scratch_folder

Rollouts = Callable[[Item], Trajectory]


@dataclass
class FinishedRollouts:
    """Stores finished rollouts on disk. Thread-safe."""

    journal: Journal
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: str) -> Trajectory | None:
        """Returns the finished rollout with this key, or None if there is no such rollout."""
        return self.journal.record(key, Trajectory) if key in self.journal else None

    def put(self, key: str, trajectory: Trajectory) -> None:
        """Writes a rollout to disk. The data is on disk when the method returns."""
        with self._lock:
            self.journal.append({**trajectory, "key": key})


@dataclass
class Desk:
    """The resources that all attempts of an evaluation share."""

    plan: Plan
    keys: Keys
    bench: Bench
    rollouts: FinishedRollouts
    folders: AttemptFolders
    running: Running
    backend: Backend
    scratch: Path

    def evaluate(self, item: Item, roll_out: Rollouts) -> AttemptResult:
        """Makes and grades one attempt. A stored rollout is used if there is one. Raises ServiceRefused,
        ServingError."""
        began, name, unusable = time.monotonic(), item.task.instance_id, ""
        self.running.begin(item.name)
        self.folders.begin(name, item.sample)
        trajectory = self.rollouts.get(item.key)
        try:
            if trajectory is None:
                trajectory = self.with_names(roll_out(item))
                if trajectory.outcome not in RETRIED_ROLLOUTS | WAITING_ROLLOUTS:
                    self.rollouts.put(item.key, trajectory)
            self.running.grading(item.name)
            grade = self.grade(item, trajectory)
        except InputError as error:
            unusable = str(error)
            trajectory = trajectory or self.with_names(lost_rollout(item.task, unusable))
            grade = lost_grade(item.task, trajectory.outcome, unusable)
        folder = self.folders.name(name, item.sample)
        seconds = time.monotonic() - began
        done = attempt_result(trajectory, item.sample, grade, folder, seconds, final=bool(unusable))
        self.folders.write(trajectory, done)
        self.folders.append(done)
        self.running.end(item.name, done.outcome if done.is_paused else done.status)
        return done

    def grade(self, item: Item, trajectory: Trajectory) -> Grade | None:
        """Returns the verdict on a rollout's patch, or None if the rollout waits for a higher budget. Raises
        InputError."""
        if trajectory.outcome in WAITING_ROLLOUTS:
            return None
        prediction = Prediction(
            instance_id=item.task.instance_id,
            model_name_or_path=self.plan.policy_name,
            model_patch=trajectory.model_patch,
            outcome=trajectory.outcome,
        ) | own_eval(trajectory.messages)
        grade = grade_prediction(item.task, prediction, self.bench)
        mark = {"policy": self.plan.policy_name, "subset": self.plan.source.name}
        return grade | mark | ({"sample": item.sample} if item.sample else {})

    def recall(self, items: Sequence[Item], results: Journal) -> None:
        """Restores the folder names of attempts and the counts of finished attempts from an earlier run."""
        for item in items:
            for key in dict.fromkeys((item.key, item.result_key)):
                if key in results:
                    self.folders.keep(done := results.record(key, AttemptResult))
                    if key == item.result_key and not (done.is_lost or done.is_paused):
                        self.running.end(item.name, done.status)

    @contextmanager
    def at_work(self, items: Sequence[Item]) -> Iterator[Callable[[Item], AttemptResult]]:
        """Yields a function that makes and grades one attempt. Opens a model only if a rollout remains to be
        made."""
        opened = _program if isinstance(self.plan.scaffold, SweAgentScaffold) else _loop
        todo = [item for item in items if item.key not in self.rollouts.journal]
        with opened(self, todo) as roll_out, draw_table(self.running):
            yield lambda item: self.evaluate(item, roll_out)

    def with_names(self, rollout: Mapping[str, object]) -> Trajectory:
        """Returns the rollout, with the names of the policy and the subset added to it."""
        mark = {"policy": self.plan.policy_name, "subset": self.plan.source.name}
        return Trajectory.of({**rollout, **mark})


def attempts(
    plan: Plan, tasks: Sequence[Task], images: Mapping[str, Image], folders: AttemptFolders
) -> Iterator[AttemptResult]:
    """Yields the attempts: sample 0 of every task in the order of `tasks`, then sample 1, and so on.

    images: maps instance ids to images, for the tasks that run in an image. See `run_shard`. Raises
    ServiceRefused, ServingError, BackendMissing, and InputError if a repository archive does not exist.
    Raises ShardLost if more than `plan.max_lost` attempts were lost or refused. After any of these
    errors, `finished_attempts` returns the attempts that are in the journal.
    """
    with open_desk(plan, images, folders) as desk, Journal(plan.progress / "results.jsonl") as results:
        items = desk.keys.items(tasks)
        desk.running.total = len(items)
        desk.recall(items, results)
        yield from run_shard(
            [(item.result_key, item) for item in items],
            lambda: desk.at_work(items),
            results,
            workers=plan.workers,
            label=f"evaluate {plan.name}",
            kind=AttemptResult,
            is_lost=lambda done: done.is_lost,
            is_good=lambda done: bool(done.grade and done.grade.resolved),
            is_paused=lambda done: done.is_paused,
            is_refused=lambda done: done.is_refused,
            losses=attempt_losses(plan),
        )
        paid = [desk.keys.paid_run(sample) for sample in range(plan.samples)]
        for item in items:
            if item.key in desk.rollouts.journal:
                paid[item.sample].discard(item.key)


def attempt_losses(plan: Plan) -> Losses[AttemptResult]:
    """Returns a counter that limits the lost attempts to `plan.max_lost`."""
    return Losses(
        plan.max_lost, lambda done: done.reason or done.outcome, noun="attempts", option="--max-lost"
    )


@contextmanager
def open_desk(plan: Plan, images: Mapping[str, Image], folders: AttemptFolders) -> Iterator[Desk]:
    """Opens the resources that the attempts share, and closes them when the block ends. Raises
    BackendMissing, and InputError if the plan's witness file does not exist."""
    backend, witnesses = open_backend(), Witnesses(plan.witness)
    with ExitStack() as stack:
        scratch = stack.enter_context(scratch_folder())
        keys = Keys(plan, images, RepoStore(plan.repos, scratch / "repos"), witnesses)
        deferred = cast(Backend, stack.enter_context(DeferredBackend(backend, most=plan.workers)))
        kept = FinishedRollouts(stack.enter_context(Journal(plan.progress / "rollouts.jsonl")))
        store, archive = RepoStore(plan.repos, scratch / "graded"), Archive(plan.progress / "runs")
        bench = Bench(store, deferred, images, archive, witnesses)
        yield Desk(plan, keys, bench, kept, folders, Running(0), backend, scratch)


def finished_attempts(plan: Plan) -> list[AttemptResult]:
    """Returns the newest record of each attempt in the evaluation's journal."""
    path = plan.progress / "results.jsonl"
    if not path.is_file():
        return []
    with Journal(path) as journal:
        return [journal.record(key, AttemptResult) for key in journal]


@contextmanager
def _loop(desk: Desk, todo: list[Item]) -> Iterator[Rollouts]:
    """Yields a function that makes a rollout with swelab's own agent loop. Opens the model only if a rollout
    remains to be made."""
    plan, keys = desk.plan, desk.keys
    loop: MiniLoop = loop_of(plan.scaffold)
    with ExitStack() as stack:
        log = plan.progress / "server.log"
        opened = open_attempt_models(plan.policy, plan.policy_name, loop, plan.samples, log, keys.paid_run)
        actor = stack.enter_context(opened) if todo else None

        def roll_out(item: Item) -> Trajectory:
            assert actor, "no rollout was left to do"
            model_for = lambda task: watch(actor(task, item.sample), item.name, desk.running)  # noqa: E731
            place = (keys.store, desk.backend, loop, desk.scratch, keys.images)
            return Trajectory.of(attempt_task(item.task, model_for, *place))

        yield roll_out


@contextmanager
def _program(desk: Desk, todo: list[Item]) -> Iterator[Rollouts]:
    """Makes all rollouts with SWE-agent, one batch for each sample. Then yields a function that returns the
    rollout of an attempt."""
    plan = desk.plan
    assert isinstance(plan.scaffold, SweAgentScaffold)
    rows_by_key: dict[str, Trajectory] = {}
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
            losses=Losses(),  # `attempts` limits the losses
        )
        rows_by_key |= {item.key: row for item, row in zip(mine, rows, strict=True)} if mine else {}
    yield lambda item: rows_by_key[item.key]
