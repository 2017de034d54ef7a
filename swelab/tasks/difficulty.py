"""Rates how hard tasks are. A model reads issue and patch and answers with one word, which has a rating."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError

from swelab.configs.experiment import NO_RESULT, service_of
from swelab.configs.kinds.policy import Policy
from swelab.configs.kinds.rater import Rater
from swelab.configs.kinds.scaffold import WHOLE
from swelab.files.json_streams import Spool
from swelab.jobs.journal import Journal
from swelab.jobs.lost_instances import Losses
from swelab.jobs.resumable_run import run_shard
from swelab.models import ContextLimit, ModelLost, ModelRefused
from swelab.models.billing.paid_turns import PaidRun
from swelab.models.policy_models import ModelFor, open_policy, weights_digest
from swelab.outcomes import RETRIED_ROLLOUTS, RolloutEnd
from swelab.records import Fault, InputError, Record, digest, shorten
from swelab.records.task_records import Difficulty, Task

_THOUGHT = re.compile(r"<think>.*?(?:</think>|\Z)", re.S)
_LABEL = re.compile(r"(?:(?:the )?(?:rating|difficulty|answer)(?: is)?:?\s*)?(.*)", re.I | re.S)
MARKS = " \t\r\n*_`'\"#.!:"
"""Characters that may surround the word: white space, markup, punctuation at the end of a sentence."""
_KINDS = ("hosted", "checkpoint")


def rate_tasks(
    tasks: Iterable[Task], *, rater: Rater, policy_name: str, policy: Policy, progress: Path, workers: int
) -> Iterator[Difficulty]:
    """Yields a record of difficulty for each task, in the order of the tasks. Messages are stored on disk.

    If the journal `progress` has a rating for a task, the task is not rated again. Tasks with an unreadable
    answer or without an answer are rated again. Raises InputError if the policy's kind cannot rate, the
    template is broken, or the service refuses. Raises ServingError, BudgetSpent, and ShardLost if more than
    `max_lost` ratings are lost.
    """
    if policy.kind not in _KINDS:
        wanted = f"one that answers: {' or '.join(_KINDS)}"
        raise InputError(f"policy {policy_name} is {policy.kind}", "rater recipe", wanted)
    spool, others = Spool(), ("shards", "job", *NO_RESULT)
    asked = {name: value for name, value in policy.plain().items() if name not in others}
    paid = PaidRun(progress.absolute().parent / "paid", lambda item: item["key"])
    settings = digest([rater.plain(), asked, weights_digest(policy)])
    with Journal(progress) as journal:
        items = list(_items(tasks, rater, settings, journal, spool))

        @contextmanager
        def open_work() -> Iterator[Callable[[Record], Difficulty]]:
            log = progress.with_suffix(".server.log")
            with open_policy(policy, policy_name, WHOLE, log, paid) as model_for:
                yield lambda item: _rate(item, spool, model_for, rater)

        rated = run_shard(
            items,
            open_work,
            journal,
            workers=workers,
            label=f"rate_difficulty {policy_name}",
            kind=Difficulty,
            is_lost=lambda record: record.outcome in RETRIED_ROLLOUTS,
            is_good=lambda record: record.outcome == "rated",
            is_refused=lambda record: record.outcome == RolloutEnd.MODEL_REFUSED,
            losses=rating_losses(policy, policy_name),
        )
        for record in rated:
            paid.discard(record.pop("key"))
            yield record


def _items(
    tasks: Iterable[Task], rater: Rater, settings: str, journal: Journal, spool: Spool
) -> Iterator[tuple[str, Record]]:
    """Yields (journal key, item) for each task.
    The messages are stored in the spool. The item has the instance id, and their position in the spool."""
    for task in tasks:
        messages = prompt(task, rater)
        key = _fresh(journal, digest([settings, task.instance_id, messages]))
        number = spool.add({"messages": messages})
        yield key, {"instance_id": task.instance_id, "number": number, "key": key}


_FAULTS: dict[type[Exception], RolloutEnd] = {
    ContextLimit: RolloutEnd.CONTEXT_LIMIT,
    ModelRefused: RolloutEnd.MODEL_REFUSED,
    ModelLost: RolloutEnd.MODEL_LOST,
}
"""Maps an exception of the model to the end of the rating. The first match counts."""


def rating_losses(policy: Policy, name: str) -> Losses[Difficulty]:
    """Returns the limit for lost ratings, with a function that describes a lost rating."""
    service = service_of(policy)
    most = policy.max_lost or 0
    return Losses(most, lambda record: f"{record.outcome} at {service}: {record.answer}", name, "ratings")


def _rate(item: Record, spool: Spool, model_for: ModelFor, rater: Rater) -> Difficulty:
    with closing(model_for(Task.of(item))) as model:
        return rate(item["instance_id"], spool.get(item["number"])["messages"], model, rater)


def _fresh(journal: Journal, key: str) -> str:
    """Returns the journal key of a task. Each unreadable answer leads to a new key."""
    while key in journal and journal.get(key)["outcome"] == "unreadable":
        key = digest([key, "again"])
    return key


def prompt(task: Task, rater: Rater) -> list[dict[str, str]]:
    """Returns the messages that ask for a task's difficulty. Raises InputError for a broken template."""
    try:
        return [
            {"role": role, "content": _template(template).render(**task)}
            for role, template in (("system", rater.system_template), ("user", rater.instance_template))
        ]
    except TemplateError as error:
        where = f"rater recipe, {task.instance_id}"
        raise InputError(f"template: {error}", where, "names of the row's fields") from None


@cache
def _template(text: str) -> Template:
    made: Template = Template(text, undefined=StrictUndefined)
    return made


def rate(instance_id: str, messages: list[dict[str, str]], model: Any, rater: Rater) -> Difficulty:
    """Rates a task with a model. Asks the model again if the answer is none of the words."""
    outcome, word, model_text = "unreadable", "", ""
    usage: Counter[str] = Counter()
    words = ", ".join(rater.ratings)
    cost, attempts = 0.0, 0
    while outcome == "unreadable" and attempts < rater.attempts:
        attempts += 1
        try:
            answer = model.query(messages)
        except (ContextLimit, ModelLost) as fault:
            outcome = next(end for kind, end in _FAULTS.items() if isinstance(fault, kind))
            model_text = shorten(str(fault))
            break
        content, told = answer["content"], answer["extra"]
        usage.update(told.get("usage") or {})
        cost += told["cost"]
        model_text = shorten(content)
        if word := read_word(content, rater.ratings):
            outcome = "rated"
        messages = [
            *messages,
            {"role": "assistant", "content": content},
            {"role": "user", "content": f"Answer with nothing but one of these words: {words}."},
        ]
    return Difficulty(
        instance_id=instance_id,
        outcome=outcome,
        difficulty=word or None,
        rating=rater.ratings[word] if word else None,
        answer=model_text,
        attempts=attempts,
        usage=dict(usage),
        cost=cost,
    )


def read_word(answer: str, words: Iterable[str]) -> str:
    """Returns the word of `words` that the answer consists of, or "".
    A word within a sentence does not count, because the sentence may mean the opposite."""
    text = _THOUGHT.sub("", answer).strip(MARKS)
    stripped = _LABEL.fullmatch(text)
    bare = (stripped[1] if stripped else text).strip(MARKS).lower()
    return next((word for word in words if word.lower() == bare), "")


class Ratings:
    """Counts ratings for the manifest."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.words: Counter[str] = Counter()
        self.sum = self.asked_again = 0
        self.cost = 0.0

    def count(self, records: Iterable[Difficulty]) -> Iterator[Difficulty]:
        """Yields the records unchanged and counts them.
        Raises Fault after the last record if none has a rating."""
        for record in records:
            self.outcomes[record.outcome] += 1
            self.asked_again += record.attempts > 1
            self.cost += record.cost
            if record.difficulty is not None and record.rating is not None:
                self.words[record.difficulty] += 1
                self.sum += record.rating
            yield record
        if self.outcomes and not self.outcomes["rated"]:
            raise Fault(f"no task was rated: {dict(self.outcomes)}; expected one of the words as the answer")

    @property
    def facts(self) -> Record:
        """Returns counts of tasks by outcome and by word, the mean rating, and the cost in dollars."""
        rated = self.outcomes["rated"]
        return {
            "outcomes": dict(sorted(self.outcomes.items())),
            "difficulties": dict(sorted(self.words.items())),
            "mean_rating": round(self.sum / rated, 3) if rated else None,
            "asked_again": self.asked_again,
            "cost": self.cost,
        }
