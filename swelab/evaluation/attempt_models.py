"""Opens the model of each attempt, and reports the model's turns to the table of running attempts."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from swelab.configs.kinds.policy import CheckpointPolicy, HostedPolicy, Policy
from swelab.configs.kinds.scaffold import MiniLoop
from swelab.models.billing.paid_turns import PaidRun
from swelab.models.chat.hosted import HostedModel, Service
from swelab.models.chat.open_hosted import open_service
from swelab.models.chat.served_models import ChatModel
from swelab.models.chat.text_model import TextModel
from swelab.models.policy_models import of_sample, open_endpoint, open_policy
from swelab.records import Fault, InputError, Record
from swelab.records.task_records import Task


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
            sampling = [_sampling(policy, sample) for sample in range(samples)]
            yield lambda task, sample: ChatModel(endpoint, loop, sampling[sample])
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


def _sampling(policy: CheckpointPolicy, sample: int) -> Record:
    found = of_sample(policy, sample)
    assert isinstance(found, CheckpointPolicy)
    return found.sampling.plain()


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
