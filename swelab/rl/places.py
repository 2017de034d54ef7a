"""Opens the places where a training run's rollouts are made: this process, or the hosts of a Ray cluster."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from swelab.agents.agent import loop_of
from swelab.checks.probes import ask
from swelab.configs import recipes
from swelab.configs.kinds import SCAFFOLD
from swelab.configs.kinds.rl import Rl
from swelab.jobs.journal import Journal
from swelab.jobs.ray_workers import RayWorkers
from swelab.jobs.thread_pool import Done
from swelab.models import ServingError
from swelab.models.chat.served_tokens import ServedTokens
from swelab.models.model_values import load_named_policy
from swelab.models.serving.server import Endpoint
from swelab.outcomes import GradeEnd
from swelab.records import Fault, InputError, Record
from swelab.rl.idle_shares import Busy
from swelab.rl.judging import Judge, open_judge
from swelab.rl.model_maker import model_maker
from swelab.rl.rollout_inputs import Reads, open_bench
from swelab.rl.rollouts import Maker, Place, RolledOut, RolloutRequest, StepJournal, read_result, write_result
from swelab.rl.token_model import TimedEngine
from swelab.rl.token_template import TokenTemplate
from swelab.rollouts.rollout_stage import lost_rollout

KEY = "SWELAB_POLICY_KEY"
"""Environment variable that passes the key of the policy's servers to the hosts."""
REACH_SECONDS = 20.0


@dataclass(frozen=True)
class RayRequest:
    """A request to a host for a rollout, with its sampling temperature."""

    request: RolloutRequest
    temperature: float


@dataclass(frozen=True)
class HostRollouts:
    """Makes rollouts on a host; see `ray_workers.Place`. folder: the run's folder, with the temporary
    journals of unfinished rollouts. url: the URL of the policy's servers."""

    recipe: Rl
    start: Path
    reads: Reads
    folder: Path
    url: str
    engine: str

    @property
    def variables(self) -> tuple[str, ...]:
        """See `ray_workers.Place`."""
        return (KEY,)

    @contextmanager
    def open(self, count: int) -> Iterator[Callable[[RayRequest], Record]]:
        """See `ray_workers.Place`. Raises ServingError if this host cannot reach the servers."""
        endpoint = Endpoint(self.url, os.environ[KEY], "policy", engine=self.engine)
        check_reached(self.url)
        scaffold = loop_of(recipes.load_named(SCAFFOLD, self.recipe.scaffold))
        engine, template = ServedTokens(endpoint), TokenTemplate.of(self.start)
        with open_bench(self.reads, self.folder, count, self.recipe.method.reward) as (bench, scratch):

            def work(sent: RayRequest) -> Record:
                maker = model_maker(self.recipe, engine, template, scaffold, sent.temperature)
                with Journal(journal_of(self.folder, sent.request)) as journal:
                    done = Place(bench, scaffold, scratch, maker).roll_out(sent.request, StepJournal(journal))
                return write_result(done)

            yield work

    def is_lost(self, record: Any) -> bool:
        """Always returns False, because the host itself repeats a lost rollout."""
        return False

    def lost_record(self, item: RayRequest, reason: str) -> Record:
        """See `ray_workers.Place`."""
        grade = {"status": str(GradeEnd.INFRA_ERROR), "resolved": False}
        rollout = lost_rollout(item.request.task, reason)
        return write_result(RolledOut(item.request, rollout, grade, (), {"run": 0.0, "grade": 0.0}))


@dataclass(frozen=True)
class RayPlace:
    """Makes rollouts on the hosts; see `rollouts.Maker`."""

    call: Callable[[str, RayRequest], Done]
    folder: Path
    temperature: float
    judge: None = None

    def roll_out(self, request: RolloutRequest, journal: StepJournal) -> RolledOut:
        """Makes and grades a rollout, or reads it from the journal. Raises RayFailed, and Fault if the host's
        work fails."""
        if (known := journal.result(request)) and known.is_graded:
            return known
        done = read_result(request, self.call(request.name, RayRequest(request, self.temperature)).record)
        journal.add_result(done)
        if done.is_graded:
            journal_of(self.folder, request).unlink(missing_ok=True)
        return done


@contextmanager
def ray_places(
    recipe: Rl, start: Path, reads: Reads, folder: Path, endpoint: Endpoint
) -> Iterator[Callable[[float], RayPlace]]:
    """Yields a function that takes a sampling temperature and returns a maker of rollouts. The rollouts are
    made on the Ray cluster at $RAY_ADDRESS. Raises InputError, RayFailed, and Fault if a host cannot work."""
    if recipe.judge:
        raise InputError("executor ray with a judge", "judge", "executor: local, or no judge")
    start, folder = start.absolute(), folder.absolute()
    (folder / "on-hosts").mkdir(parents=True, exist_ok=True)
    os.environ[KEY] = endpoint.api_key
    witness = [path.absolute() for path in reads.witness]
    sent = Reads((), reads.repos_dir.absolute(), images=reads.images, witness=witness)
    hosts = HostRollouts(recipe, start, sent, folder, endpoint.url, endpoint.engine)
    with RayWorkers(recipe.rollouts.at_once).calls(hosts) as call:
        yield lambda temperature: RayPlace(call, folder, temperature)


def journal_of(folder: Path, request: RolloutRequest) -> Path:
    """Returns the path of the temporary journal that a host writes for a rollout. folder: the run's folder.
    Each validation has its own, because it attempts the same tasks as others with other weights."""
    return folder / "on-hosts" / f"{request.validation}{request.name}.jsonl"


def check_reached(url: str) -> None:
    """Raises ServingError if nothing answers at the URL of the policy's servers."""
    try:
        ask(url.removesuffix("/v1"), "/health", seconds=REACH_SECONDS)
    except Fault as error:
        raise ServingError(
            f"host {socket.gethostname()} does not reach the policy's servers: {error}; expected "
            "listen, an address of the training's machine that all hosts of the Ray cluster reach"
        ) from None


MakePlace = Callable[[float, bool], Maker]
"""A function that returns a maker of rollouts. Its arguments are the sampling temperature, and whether the
recipe's judge scores the steps."""


@contextmanager
def open_places(
    recipe: Rl, start: Path, reads: Reads, folder: Path, endpoint: Endpoint
) -> Iterator[tuple[MakePlace, Busy | None]]:
    """Yields a function that creates a maker of rollouts, and a meter.

    The rollouts are made in this process, or on the hosts of a Ray cluster if $SWELAB_EXECUTOR is ray. The
    meter measures the time in which the policy generates, and is None with Ray. Raises Fault, InputError.
    """
    if os.environ.get("SWELAB_EXECUTOR") == "ray":
        with ray_places(recipe, start, reads, folder, endpoint) as on_hosts:
            yield lambda temperature, judged: on_hosts(temperature), None
        return
    scaffold = loop_of(recipes.load_named(SCAFFOLD, recipe.scaffold))
    with (
        open_bench(reads, folder, recipe.rollouts.at_once, recipe.method.reward) as (bench, scratch),
        judge_of(recipe, folder) as judge,
    ):
        busy = Busy()
        engine, template = TimedEngine(ServedTokens(endpoint), busy), TokenTemplate.of(start)

        def place(temperature: float, judged: bool) -> Place:
            maker = model_maker(recipe, engine, template, scaffold, temperature)
            return Place(bench, scaffold, scratch, maker, judge if judged else None)

        yield place, busy


def judge_of(recipe: Rl, folder: Path) -> AbstractContextManager[Judge | None]:
    """Returns a context manager that opens the judge of single steps. The context manager yields None if the
    recipe has no judge."""
    if not (asked := recipe.judge):
        return nullcontext()
    policy = load_named_policy(asked.policy)
    return open_judge(policy, asked.policy, asked.votes, asked.at_once, folder)
