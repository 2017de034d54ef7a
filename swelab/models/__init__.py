"""Models for rollouts: chat models, hosted models, scripted experts, and servers of weights."""

import re

from swelab.records import Fault

OVERFLOW = re.compile(
    r"context[_ ](length|window(?!\w*\.json)|limit|size)|maximum context|longer than the (maximum )?model"
    r"|too many (input )?tokens|input tokens exceed|tokens? (count )?exceeds (the )?(\w+ )?token limit"
    r"|exceeds the token limit|tokens in the prompt cannot exceed|current length is \d+ while limit"
    r"|maximum (allowed|prompt|input) length|maximum number of tokens|(prompt|input|messages) is too long"
    r"|max_new_tokens` must be|reduce the length of the (messages|prompt)|range of input length"
    r"|model token limit|messages\S* string too long|max_tokens must be at least 1, got -",
    re.I,
)
"""Phrases by which services report that a conversation is too long for the model."""


class ModelLost(Fault):
    """A model did not answer after all retries. This counts as a loss of infrastructure, not as a failure of
    the policy."""


class ContextLimit(Fault):
    """A conversation no longer fits into the model's context."""


class ServingError(Fault):
    """A model server did not start, or ended while a caller needed it."""


class BudgetSpent(Fault):
    """The rest of a run's budget is too small for the next call."""
