"""A policy model in token ids that omits middle turns when the history is too long for the context.

Shortens a long conversation for the policy: keeps the first and last turns, and one line for the rest.

Turns are selected by their numbers of tokens only, so the shown turns keep exactly the token ids that an
engine saw. The idea and the shares (head 30 %, tail 70 %) are from OpenClaw-RL's context manager. Three
things are different here. The newest turn is always shown. The head may use budget that the tail does not
need, and the tail may use budget of the head. The selected turns always fit into the budget.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from swelab.models import ContextLimit
from swelab.records import Record
from swelab.rl.token_model import TokenModel

HEAD_SHARE = 0.3
PLACEHOLDER = "[... {n} turn(s) of interaction history omitted due to context window limit ...]"


@dataclass(frozen=True)
class TurnWindow:
    """The turns to show: `turns[:head]` and `turns[tail:]`. size: number of tokens that are shown."""

    head: int
    tail: int
    size: int

    @property
    def omitted(self) -> int:
        """The number of turns that the placeholder replaces."""
        return self.tail - self.head


def placeholder(omitted: int) -> str:
    """Returns the line that replaces `omitted` turns. The caller appends this line to the user message before
    the omitted turns."""
    return PLACEHOLDER.format(n=omitted)


def select_turns(
    turns: Sequence[int],
    fixed: int,
    budget: int,
    placeholder_tokens: Callable[[int], int],
    head_share: float = HEAD_SHARE,
) -> TurnWindow | None:
    """Returns the turns to show within `budget` tokens, or None if not even the newest turn fits.

    turns: number of tokens of each turn (an answer and its results), oldest first. fixed: number of tokens of
    the system message and the first user message. placeholder_tokens: returns the number of tokens of the
    line for n omitted turns. Only whole turns are shown. First, the head takes the oldest turns that fit into
    its share. Then the tail takes the newest turns that fit into the rest. Last, the head takes more turns,
    if they fit into the budget that is left.
    """
    everything = fixed + sum(turns)
    if everything <= budget:
        return TurnWindow(len(turns), len(turns), everything)
    line = max(map(placeholder_tokens, range(1, len(turns) + 1)), default=0)
    available = budget - fixed - line
    if not turns or turns[-1] > available:
        return None
    older = turns[:-1]
    share = min(int(available * head_share), available - turns[-1])
    head = _fitting(older, share)
    left = available - turns[-1] - sum(older[:head])
    tail = len(older) - _fitting(older[head:][::-1], left)
    left -= sum(older[tail:])
    head += _fitting(older[head:tail], left)
    size = fixed + sum(turns[:head]) + placeholder_tokens(tail - head) + sum(turns[tail:])
    return TurnWindow(head, tail, size)


def _fitting(costs: Sequence[int], room: int) -> int:
    """Returns the largest n for which the sum of the first n costs is at most `room`."""
    return sum(total <= room for total in accumulate(costs))


_SEAM = 4
"""Extra tokens to reserve for the placeholder, because the text next to it may be tokenised differently."""


class ManagedModel(TokenModel):
    """A `TokenModel` whose prompts have at most `budget` tokens; see `select_turns`."""

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
