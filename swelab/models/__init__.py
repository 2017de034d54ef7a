"""Who acts in a rollout: chat models, hosted models, scripted experts, and servers of weights."""

from swelab.records import Fault


class ModelLost(Fault):
    """A model did not answer, after all retries: a loss of infrastructure, not a failure of the policy."""


class ContextLimit(Fault):
    """A conversation no longer fits into the model's context."""


class ServingError(Fault):
    """A model server did not start, or ended while it was needed."""


class BudgetSpent(Fault):
    """The budget of a run has no room for the next call."""
