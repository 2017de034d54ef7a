"""Models for rollouts: chat models, hosted models, scripted experts, and servers of weights."""

from swelab.records import Fault, InputError


class ModelLost(Fault):
    """A model did not answer after all retries. This counts as a loss of infrastructure, not as a failure of
    the policy."""


class ModelRefused(ModelLost):
    """A model's service does not answer this conversation, and will not at another try."""


class ContextLimit(Fault):
    """A conversation no longer fits into the model's context."""


class SettingRefused(InputError):
    """A model's service does not take the sampling setting `setting`."""

    def __init__(self, setting: str, words: str, where: str):
        super().__init__(
            f"the model service refused the setting {setting}: {words}",
            where,
            "another value of it under sampling, or a recipe without it",
        )
        self.setting = setting


class ServingError(Fault):
    """A model server did not start, or ended while a caller needed it."""


class BudgetSpent(Fault):
    """The rest of a run's budget is too small for the next call."""
