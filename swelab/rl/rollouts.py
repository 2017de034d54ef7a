"""Makes rollouts for training. A policy that works on token ids attempts tasks, and its patches are graded.

Each turn is written to a journal. So no turn is sampled again after an interruption. Finished rollouts are
read from the journal, and unfinished rollouts are resumed after their last turn.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from swelab.configs.kinds.scaffold import MiniLoop
from swelab.grading.grading_stage import Bench, grade_prediction
from swelab.jobs.journal import Journal
from swelab.models.token_turn import TokenTurn
from swelab.outcomes import LOST_ROLLOUTS, GradeEnd, RolloutEnd
from swelab.records import Record
from swelab.records.attempt_records import Prediction, Rollout
from swelab.records.task_records import Task
from swelab.rl.failures import Attempt
from swelab.rl.judging import Judge, RolloutVotes, Votes
from swelab.rl.process_reward import step_score, trajectory_reward
from swelab.rl.token_model import TokenModel
from swelab.rollouts.own_eval import own_eval
from swelab.rollouts.rollout_stage import attempt_task

TRIES = 3
"""Maximum number of attempts at a rollout that is lost to infrastructure."""

MakeModel = Callable[[Callable[[TokenTurn], None], list[TokenTurn]], TokenModel]
"""A function that makes the model of one rollout. The function's arguments are a callback for each new turn,
and the turns that an interrupted attempt sampled."""


@dataclass(frozen=True)
class RolloutRequest:
    """A rollout to make. prompt: the prompt's number in the run. sample: the rollout's number in its
    group. validation: prefix that names the validation that makes the rollout, or "" in training."""

    prompt: int
    sample: int
    task: Task = field(repr=False)
    validation: str = ""

    @property
    def name(self) -> str:
        """The rollout's name in messages and in the journal."""
        return f"{self.task.instance_id}__g{self.prompt}__i{self.sample}"


@dataclass(frozen=True)
class RolledOut:
    """A finished rollout. seconds: duration of the attempt (`run`) and of its grading (`grade`). votes: a
    judge's votes on each step, empty without a judge."""

    request: RolloutRequest
    trajectory: Record
    grade: Record
    turns: tuple[TokenTurn, ...]
    seconds: Record
    votes: Votes = ()

    @property
    def is_graded(self) -> bool:
        """Whether the verdict is final. It is not if only the verdict was lost to infrastructure."""
        lost = self.grade["status"] == GradeEnd.INFRA_ERROR
        return not lost or self.trajectory["outcome"] in LOST_ROLLOUTS

    @property
    def scores(self) -> list[float | None]:
        """The judge's score of each turn of the policy, or None for a turn without a score."""
        told = [step_score(votes) for votes in self.votes]
        return [*told, *[None] * len(self.turns)][: len(self.turns)]

    def attempt(self, reward: Callable[[Record], float], coefficient: float = 0.0) -> Attempt:
        """Returns the facts about this rollout that its group needs, such as its end and its reward. reward:
        converts a grade to a number. coefficient: factor of the judge's mean score, which is added to the
        reward."""
        end = next(each for each in RolloutEnd if each == self.trajectory["outcome"])
        graded = next(each for each in GradeEnd if each == self.grade["status"])
        status = None if end in LOST_ROLLOUTS else graded
        given = None
        if status not in (None, GradeEnd.INFRA_ERROR):
            given = trajectory_reward(reward(self.grade), self.scores, coefficient)
        return Attempt(end, status, given, sum(len(turn.sampled) for turn in self.turns))


class StepJournal:
    """The journal of one step's rollouts, with a line for each turn and a line for each finished rollout."""

    def __init__(self, journal: Journal):
        self._journal, self._one = journal, threading.Lock()

    def result(self, request: RolloutRequest) -> RolledOut | None:
        """Returns the rollout if it is finished, otherwise None."""
        with self._one:
            return (
                read_result(request, self._journal.get(request.name))
                if request.name in self._journal
                else None
            )

    def turns(self, request: RolloutRequest) -> list[TokenTurn]:
        """Returns those turns of an unfinished rollout that are in the journal."""
        found: list[TokenTurn] = []
        with self._one:
            while (key := f"{request.name} {len(found)}") in self._journal:
                found.append(read_turn(self._journal.get(key)["turn"]))
        return found

    def add_turn(self, request: RolloutRequest, number: int, turn: TokenTurn) -> None:
        """Writes a sampled turn."""
        self._append({"key": f"{request.name} {number}", "turn": write_turn(turn)})

    def add_result(self, done: RolledOut) -> None:
        """Writes a finished rollout."""
        self._append({"key": done.request.name, **write_result(done)})

    def _append(self, line: Record) -> None:
        with self._one:
            self._journal.append(line)


class Maker(Protocol):
    """Makes rollouts for a training run, on this machine (`Place`) or on other machines
    (`places.RayPlace`)."""

    @property
    def judge(self) -> Judge | None:
        """The judge that scores the rollouts' steps, or None without a judge."""
        ...

    def roll_out(self, request: RolloutRequest, journal: StepJournal) -> RolledOut:
        """Makes and grades a rollout, or reads it from the journal. Raises Fault."""
        ...


@dataclass(frozen=True)
class Place:
    """Makes and grades rollouts in this process."""

    bench: Bench
    scaffold: MiniLoop
    scratch: Path
    make_model: MakeModel
    judge: Judge | None = None

    def roll_out(self, request: RolloutRequest, journal: StepJournal) -> RolledOut:
        """Makes and grades a rollout, or reads it from the journal. Raises InputError, ServingError."""
        done = journal.result(request)
        if done and done.is_graded:
            return done
        if done:
            return self._grade_again(done, journal)
        watched = (
            RolloutVotes(self.judge, request.name, request.task.problem_statement) if self.judge else None
        )
        for _ in range(TRIES):
            done = self._attempt(request, journal, watched)
            if done.trajectory["outcome"] not in LOST_ROLLOUTS:
                break
        assert done
        if watched:
            done = replace(done, votes=watched.votes(done.trajectory["messages"]))
        journal.add_result(done)
        if watched:
            watched.forget()
        return done

    def _grade_again(self, done: RolledOut, journal: StepJournal) -> RolledOut:
        """Grades a rollout whose verdict was lost to infrastructure in an earlier run."""
        began = time.monotonic()
        grade = self._grade(done.request.task, Rollout.of(done.trajectory))
        seconds = {**done.seconds, "grade": round(time.monotonic() - began, 3)}
        done = replace(done, grade=grade, seconds=seconds)
        journal.add_result(done)
        return done

    def _grade(self, task: Task, trajectory: Rollout) -> Record:
        """Tests a patch. Tries again if the verdict is lost to infrastructure, but not if the rollout was."""
        prediction = Prediction.of({name: trajectory[name] for name in ("model_patch", "outcome")})
        prediction.update(own_eval(trajectory.messages))
        grade: Record = {}
        for _ in range(1 if trajectory.outcome in LOST_ROLLOUTS else TRIES):
            grade = grade_prediction(task, prediction, self.bench)
            if grade["status"] != GradeEnd.INFRA_ERROR:
                break
        return grade

    def _attempt(
        self, request: RolloutRequest, journal: StepJournal, watched: RolloutVotes | None
    ) -> RolledOut:
        began = time.monotonic()
        known = journal.turns(request)
        models: list[TokenModel] = []
        fresh = iter(range(len(known), 1 << 30))

        def model_for(task: Task) -> TokenModel:
            model = self.make_model(lambda turn: journal.add_turn(request, next(fresh), turn), known)
            if watched:
                model.watch = watched.begin().ask_votes
            models.append(model)
            return model

        assert self.bench.backend
        trajectory = attempt_task(
            request.task,
            model_for,
            self.bench.store,
            self.bench.backend,
            self.scaffold,
            self.scratch,
            self.bench.images,
        )
        ran = time.monotonic()
        grade = self._grade(request.task, trajectory)
        seconds = {"run": round(ran - began, 3), "grade": round(time.monotonic() - ran, 3)}
        return RolledOut(request, trajectory, grade, tuple(models[-1].turns) if models else (), seconds)


def write_result(done: RolledOut) -> Record:
    """Converts a finished rollout to a record."""
    return {
        "trajectory": done.trajectory,
        "grade": done.grade,
        "turns": [write_turn(turn) for turn in done.turns],
        "seconds": done.seconds,
        "votes": [list(step) for step in done.votes],
    }


def read_result(request: RolloutRequest, record: Record) -> RolledOut:
    """Reads a finished rollout from its record."""
    turns = tuple(map(read_turn, record["turns"]))
    votes = tuple(map(tuple, record.get("votes", ())))
    return RolledOut(request, record["trajectory"], record["grade"], turns, record["seconds"], votes)


def write_turn(turn: TokenTurn) -> Record:
    """Converts a turn to a record."""
    return {
        "prompt": list(turn.prompt),
        "sampled": list(turn.sampled),
        "logprobs": list(turn.logprobs),
        "finish": turn.finish,
        "versions": [list(version) for version in turn.versions],
    }


def read_turn(record: Record) -> TokenTurn:
    """Reads a turn from its record."""
    versions = tuple((start, version) for start, version in record["versions"])
    return TokenTurn(
        tuple(record["prompt"]),
        tuple(record["sampled"]),
        tuple(record["logprobs"]),
        record["finish"],
        versions,
    )
