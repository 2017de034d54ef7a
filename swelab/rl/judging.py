"""Asks a judge for votes on the steps of rollouts, while the rollouts run.

The score of a step is the mean of its votes. A vote is excluded from the mean if the judge's service failed,
or if it is neither +1 nor -1. Paid votes are stored until the rollout is in the journal, so that no vote is
paid for twice.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Lock
from typing import Any, cast

from swelab.configs.kinds.policy import Policy
from swelab.configs.kinds.scaffold import WHOLE
from swelab.models import ContextLimit, ModelLost
from swelab.models.billing.paid_turns import PaidRun
from swelab.models.policy_models import ModelFor, open_policy
from swelab.records import Record, digest
from swelab.records.task_records import Task
from swelab.rl.process_reward import Step, judge_messages, read_vote

Votes = tuple[tuple[int | None, ...], ...]
"""The votes on each step of a rollout. A vote is +1 or -1, or None if the judge gave no readable vote."""


class Judge:
    """A judge that gives `votes` votes on each step, with at most `workers` requests at once."""

    def __init__(self, model_for: ModelFor, paid: PaidRun, votes: int, workers: int):
        self.votes, self.pool = votes, ThreadPoolExecutor(workers)
        self._model_for, self._paid, self._one, self._used = model_for, paid, Lock(), Counter[str]()

    def vote(self, key: str, messages: list[dict[str, str]]) -> int | None:
        """Requests one vote. Returns None if there is no readable vote. key: name of the vote, which is the
        same when a killed run is resumed. Raises ServingError, InputError, BudgetSpent."""
        try:
            with closing(cast(Any, self._model_for(Task.of({"instance_id": key})))) as model:
                told = model.query(messages)
        except (ContextLimit, ModelLost):
            self._count(calls=1, lost=1)
            return None
        found, extra = read_vote(str(told["content"])), told["extra"]
        tokens = {name: n for name, n in (extra.get("usage") or {}).items() if isinstance(n, int)}
        dollars = float(extra.get("cost") or 0.0)
        self._count(calls=1, unreadable=int(found is None), nanodollars=round(dollars * 1e9), **tokens)
        return found

    def _count(self, **counts: int) -> None:
        with self._one:
            self._used.update(counts)

    def take_usage(self) -> dict[str, float]:
        """Returns the usage since the last call of this method: calls, lost and unreadable calls, tokens,
        dollars."""
        with self._one:
            used, self._used = self._used, Counter()
        dollars = used.pop("nanodollars", 0) / 1e9
        return {**used, "dollars": dollars} if used else {}

    def forget(self, keys: Sequence[str]) -> None:
        """Discards the stored answers of these votes, because the rollout's record now contains the votes."""
        for key in keys:
            self._paid.discard(key)


class RolloutVotes:
    """The judge's votes on the rollout `name`."""

    def __init__(self, judge: Judge, name: str, issue: str):
        self.judge, self.name, self.issue = judge, name, issue
        self._keys: list[str] = []
        self._votes: list[list[Future[int | None]]] = []

    def begin(self) -> "RolloutVotes":
        """Discards all votes so far and returns self. Call this before each attempt at the rollout."""
        self._votes.clear()
        return self

    def ask_votes(self, messages: Sequence[Record]) -> None:
        """Requests votes on new steps that have a result. messages: all messages of the rollout so far."""
        steps = steps_of(messages)
        for number in range(len(self._votes), len(steps)):
            question = judge_messages(self.issue, steps, number)
            keys = [digest([self.name, number, vote, question]) for vote in range(self.judge.votes)]
            self._keys += keys
            self._votes.append([self.judge.pool.submit(self.judge.vote, key, question) for key in keys])

    def votes(self, messages: Sequence[Record]) -> Votes:
        """Waits for all votes and returns them. Raises the exception of a failed request."""
        self.ask_votes(messages)
        return tuple(tuple(each.result() for each in step) for step in self._votes)

    def forget(self) -> None:
        """Discards the stored votes. Call this after the rollout was written to the journal."""
        self.judge.forget(self._keys)


def steps_of(messages: Sequence[Record]) -> list[Step]:
    """Returns the steps of a conversation that have a result, one for each turn of the policy. A last answer
    without a result is excluded. An empty answer leaves no message but the reply to it, and is a step too."""
    steps = list[Step]()
    for message, after in zip(messages, messages[1:], strict=False):
        if message["role"] != "assistant":
            if after.get("extra", {}).get("interrupt_type") == "FormatError":
                steps.append(Step("", "", None, str(after["content"])))
            continue
        actions, extra = message.get("extra", {}).get("actions", []), after.get("extra", {})
        command = actions[0]["command"] if actions else ""
        steps.append(Step(str(message["content"]), command, extra.get("returncode"), str(after["content"])))
    return steps


@contextmanager
def open_judge(policy: Policy, name: str, votes: int, workers: int, folder: Path) -> Iterator[Judge]:
    """Opens a judge while the block runs. The judge is a hosted model, or a model that is served on this
    machine. folder: folder for the server's log and the journal of paid calls. Raises InputError,
    ServingError, BudgetSpent."""
    paid = PaidRun(folder / "judge", lambda task: task.instance_id)
    with open_policy(policy, name, WHOLE, folder / "judge.log", paid) as model_for:
        judge = Judge(model_for, paid, votes, workers)
        try:
            yield judge
        finally:
            judge.pool.shutdown(cancel_futures=True)
