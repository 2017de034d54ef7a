"""Models for rollouts: chat models, hosted models, scripted experts, and servers of weights."""

from swelab.records import Fault


class ModelLost(Fault):
    """A model did not answer after all retries. This counts as a loss of infrastructure, not as a failure of
    the policy."""


class ModelRefused(ModelLost):
    """A model's service does not answer this conversation, and will not at another try."""


class ContextLimit(Fault):
    """A conversation no longer fits into the model's context."""


class ServingError(Fault):
    """A model server did not start, or ended while a caller needed it."""


class BudgetSpent(Fault):
    """The rest of a run's budget is too small for the next call."""
