"""Runs the attempts of an evaluation. An attempt is a rollout and then its grade, and both can be resumed.

A rollout is written to a journal before it is graded. So a killed run never pays for a finished rollout
twice.

Also lists the attempts of an evaluation, and computes their keys. A key depends on everything that affects
the attempt.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

from swelab.agents.agent import loop_of
from swelab.configs.experiment import scaffold_slice
from swelab.configs.kinds.policy import CheckpointPolicy, HostedPolicy, Policy
from swelab.configs.kinds.scaffold import MiniLoop, SweAgentScaffold
from swelab.console.terminal import clock
from swelab.evaluation.attempt_folders import AttemptFolders
from swelab.evaluation.attempt_result import AttemptResult, attempt_result
from swelab.evaluation.evaluation_plan import Plan
from swelab.grading.grading_stage import Bench, grade_prediction, lost_grade
from swelab.grading.run_cache import Archive
from swelab.grading.witness_store import Witnesses
from swelab.jobs.journal import Journal
from swelab.jobs.lost_instances import Losses
from swelab.jobs.resumable_run import run_shard
from swelab.jobs.shards import shard_names
from swelab.models.billing.paid_turns import PaidRun
from swelab.models.chat.hosted import HostedModel, Service
from swelab.models.chat.open_hosted import open_service
from swelab.models.chat.scripted import read_repairs, with_repair
from swelab.models.chat.text_model import TextModel
from swelab.models.policy_models import of_sample, open_endpoint, open_policy, served_model, weights_digest
from swelab.outcomes import RETRIED_ROLLOUTS, WAITING_ROLLOUTS
from swelab.records import Fault, InputError, Record, digest, shorten
from swelab.records.attempt_records import Grade, Prediction, Trajectory
from swelab.records.task_records import Task
from swelab.rollouts.own_eval import own_eval
from swelab.rollouts.rollout_stage import attempt_task, lost_rollout, rollout_key
from swelab.rollouts.swe_agent_rollouts import roll_out_batch
from swelab.sandbox import Backend, Image, open_backend
from swelab.sandbox.deferred import DeferredBackend
from swelab.tasks.checkout import RepoStore, scratch_folder

SHOWN_COMMAND = 100


@dataclass
class Attempt:
    """A running attempt. began: start time, measured with time.monotonic()."""

    began: float
    state: str = "sandbox"
    step: int = 0
    cost: float = 0.0
    command: str = ""


class Running:
    """The running attempts, and the numbers of finished attempts by status. Thread-safe."""

    def __init__(self, total: int):
        self.total = total
        self.ends: dict[str, int] = {}
        self._now: dict[str, Attempt] = {}
        self._lock = threading.Lock()

    def begin(self, name: str) -> None:
        """Called when an attempt begins."""
        with self._lock:
            self._now[name] = Attempt(time.monotonic())

    def turn(self, name: str, step: int, cost: float, command: str) -> None:
        """See `attempt_run.Watcher`."""
        with self._lock:
            if found := self._now.get(name):
                found.state, found.step, found.cost = "acting", step, cost
                found.command = command or found.command

    def grading(self, name: str) -> None:
        """Called when the grading of the attempt's patch begins."""
        with self._lock:
            if found := self._now.get(name):
                found.state = "grading"

    def end(self, name: str, status: str) -> None:
        """Called when an attempt has ended."""
        with self._lock:
            self._now.pop(name, None)
            self.ends[status] = self.ends.get(status, 0) + 1

    def rows(self) -> list[tuple[str, str, int, str, str, str]]:
        """Returns (attempt, state, step, dollars, time, last command) of each running attempt, the oldest
        first."""
        with self._lock:
            attempts = sorted(self._now.items(), key=lambda pair: pair[1].began)
        now = time.monotonic()
        return [
            (
                name,
                each.state,
                each.step,
                f"{each.cost:.2f}" if each.cost else "",
                clock(now - each.began),
                shorten(each.command, SHOWN_COMMAND),
            )
            for name, each in attempts
        ]

    def words(self) -> str:
        """Returns the number of finished attempts, in total and by status."""
        with self._lock:
            ends = dict(self.ends)
        counts = ", ".join(f"{count} {status}" for status, count in sorted(ends.items(), key=lambda e: -e[1]))
        return f"{sum(ends.values())} of {self.total}" + (f": {counts}" if counts else "")


@contextmanager
def draw_table(running: Running) -> Iterator[None]:
    """Draws the table during the block if stderr is a terminal. Otherwise does nothing."""
    if not sys.stderr.isatty() or os.environ.get("TERM") in (None, "", "dumb", "unknown"):
        yield
        return
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        yield
        return
    console = Console(file=sys.stderr)
    table = lambda: _table(running, console.height)  # noqa: E731
    with Live(get_renderable=table, console=console, refresh_per_second=2, transient=True):
        yield


def _table(running: Running, height: int) -> Any:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    rows = running.rows()
    room = max(1, height - 5)
    table = Table(box=None, pad_edge=False, expand=True)
    for title, options in (
        ("attempt", {"ratio": 3}),
        ("doing", {}),
        ("step", {"justify": "right"}),
        ("$", {"justify": "right"}),
        ("time", {"justify": "right"}),
        ("last command", {"ratio": 5}),
    ):
        table.add_column(title, no_wrap=True, overflow="ellipsis", **options)  # type: ignore[arg-type]
    for row in rows[:room]:
        table.add_row(*(Text(str(each)) for each in row))
    more = f", {len(rows) - room} more running" if len(rows) > room else ""
    return Group(table, Text(running.words() + more, no_wrap=True, overflow="ellipsis"))


@dataclass(frozen=True)
class Item:
    """One attempt at a task. sample: index of the attempt among the attempts at this task. key: the rollout's
    key. result_key: the verdict's key, which also depends on the witness evidence."""

    task: Task
    sample: int
    key: str
    result_key: str

    @property
    def name(self) -> str:
        """The attempt's name on the terminal: the task's id. The suffix `#sample` is added if `sample` is not
        0."""
        return f"{self.instance_id}#{self.sample}" if self.sample else self.instance_id

    @property
    def instance_id(self) -> str:
        """The task's id, under which durations are recorded."""
        return self.task.instance_id


@dataclass
class Keys:
    """Computes the keys of rollouts and verdicts, and finds the paid turns of each sample."""

    plan: Plan
    images: Mapping[str, Image]
    store: RepoStore
    witnesses: Witnesses

    def items(self, tasks: Sequence[Task]) -> list[Item]:
        """Returns all attempts: first sample 0 of every task in the tasks' order, then sample 1, and so on.
        Raises InputError if a repository archive does not exist."""
        found = []
        for sample in range(self.plan.samples):
            for task in tasks:
                key, witness = self.of(task, sample), self.witnesses.digest(task.instance_id)
                found.append(Item(task, sample, key, digest([key, witness]) if witness else key))
        return found

    @cached_property
    def settings(self) -> Record:
        """All settings of the scaffold as plain values."""
        scaffold = self.plan.scaffold
        if isinstance(scaffold, SweAgentScaffold):
            return scaffold_slice(scaffold)
        return loop_of(scaffold).plain()

    @cached_property
    def weights(self) -> str:
        """Digest of the policy's weights."""
        return weights_digest(self.plan.policy)

    @cached_property
    def repairs(self) -> Mapping[str, str]:
        """Maps instance ids to the repairs that the recipe of a scripted policy names."""
        return read_repairs(self.plan.policy)

    def of(self, task: Task, sample: int) -> str:
        """Returns a hash of everything that affects an attempt's rollout. Raises InputError if the task's
        repository archive does not exist."""
        image = self.images.get(task.instance_id)
        place = image.digest if image else self.store.digest(task)
        policy = of_sample(self.plan.policy, sample)
        key = rollout_key(with_repair(task, self.repairs), policy, self.settings, self.weights, place)
        return digest([key, sample]) if sample else key

    def paid_run(self, sample: int) -> PaidRun:
        """Returns the paid turns of one sample. All samples share one ledger."""
        return PaidRun(self.plan.paid, lambda task: self.of(task, sample))


class ServiceRefused(Fault):
    """The model's service refuses requests, so no attempt can continue."""


class Watcher(Protocol):
    """Is notified of each turn of the running attempts."""

    def turn(self, name: str, step: int, cost: float, command: str) -> None:
        """Called after each answer of the model. step: sequence number of the answer. cost: dollars of the
        attempt so far. command: the answer's last command, or ""."""
        ...


ModelFor = Callable[[Task, int], TextModel]


@contextmanager
def open_attempt_models(
    policy: Policy, name: str, loop: MiniLoop, samples: int, log: Path, paid: Callable[[int], PaidRun]
) -> Iterator[ModelFor]:
    """Yields a function that maps (task, sample index) to the model of that attempt.

    Weights are served once for all samples. log: the server's log. paid: maps a sample index to the paid
    turns of a hosted model. Raises InputError, ServingError, BudgetSpent.
    """
    with ExitStack() as stack:
        if isinstance(policy, CheckpointPolicy):
            endpoint = stack.enter_context(open_endpoint(policy, name, log))
            served = [_with_seed_of(policy, sample) for sample in range(samples)]
            yield lambda task, sample: served_model(served[sample], endpoint, loop)
        elif isinstance(policy, HostedPolicy):
            runs = [paid(sample) for sample in range(samples)]
            first = stack.enter_context(open_service(policy, name, loop, runs[0].ledger))
            services = [_of_sample(first, policy, sample) for sample in range(samples)]
            yield lambda task, sample: HostedModel(services[sample], loop, lambda: runs[sample].turns(task))
        else:
            opened = [
                stack.enter_context(open_policy(of_sample(policy, sample), name, loop, log, paid(sample)))
                for sample in range(samples)
            ]
            yield lambda task, sample: opened[sample](task)


def _with_seed_of(policy: CheckpointPolicy, sample: int) -> CheckpointPolicy:
    found = of_sample(policy, sample)
    assert isinstance(found, CheckpointPolicy)
    return found


def _of_sample(service: Service, policy: HostedPolicy, sample: int) -> Service:
    """Returns the service with the sample's own seed. All samples share the API keys and the ledger."""
    found = of_sample(policy, sample)
    assert isinstance(found, HostedPolicy)
    return replace(service, sampling=found.sampling) if sample else service


def watch(model: TextModel, name: str, watcher: Watcher) -> TextModel:
    """Changes the model so that it notifies `watcher` of each answer, and returns it. If the service refuses
    a request, the model raises ServiceRefused."""
    query: Callable[..., Record] = model.query  # type: ignore[attr-defined]
    state = {"step": 0, "cost": 0.0}

    def watched_query(messages: list[Record], **further: Any) -> Record:
        try:
            message = query(messages, **further)
        except InputError as error:
            raise ServiceRefused(str(error)) from None
        extra = message.get("extra") or {}
        state["step"] += 1
        state["cost"] += float(extra.get("cost") or 0)
        commands = [str(action.get("command", "")) for action in extra.get("actions") or []]
        watcher.turn(name, int(state["step"]), state["cost"], commands[-1] if commands else "")
        return message

    model.query = watched_query  # type: ignore[attr-defined]
    return model


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
