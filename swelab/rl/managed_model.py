"""A policy model in token ids that omits middle turns when the history is too long for the context."""

from collections.abc import Sequence
from typing import Any

from swelab.models import ContextLimit
from swelab.records import Record
from swelab.rl.context_manager import HEAD_SHARE, placeholder, select_turns
from swelab.rl.token_model import TokenModel

_SEAM = 4
"""Extra tokens to reserve for the placeholder, because the text next to it may be tokenised differently."""


class ManagedModel(TokenModel):
    """A `TokenModel` whose prompts have at most `budget` tokens; see `context_manager.select_turns`."""

    def __init__(self, *arguments: Any, budget: int, head_share: float = HEAD_SHARE, **options: Any):
        super().__init__(*arguments, **options)
        self._budget, self._head_share = budget, head_share

    def _prompt(self) -> list[int]:
        costs = [len(step) for step in self._steps]
        shown = select_turns(costs, len(self._opening), self._budget, self._line_tokens, self._head_share)
        if shown is None:
            raise ContextLimit(f"the newest turn does not fit into {self._budget} tokens")
        if not shown.omitted:
            return super()._prompt()
        line = placeholder(shown.omitted)
        if not shown.head:
            prompt = self.template.opening(_with_line(self._first, line))
        else:
            last = self._steps[shown.head - 1]
            prompt = list(self._opening)
            for step in self._steps[: shown.head - 1]:
                prompt += [*step.turn.sampled, *step.observed]
            prompt += [*last.turn.sampled, *self._following(last.turn, _with_line(last.messages, line))]
        for step in self._steps[shown.tail :]:
            prompt += [*step.turn.sampled, *step.observed]
        return prompt

    def _line_tokens(self, omitted: int) -> int:
        return len(self.template.ids("\n" + placeholder(omitted))) + _SEAM


def _with_line(messages: Sequence[Record], line: str) -> list[Record]:
    """Returns the messages with `line` appended to the last message."""
    *before, last = messages
    return [*before, {**last, "content": f"{last['content']}\n{line}"}]
