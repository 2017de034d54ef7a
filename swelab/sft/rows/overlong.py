"""Conversations that are longer than the limit: dropped, truncated or split.

Every row keeps the head (system prompt and task). Exchanges follow it; an exchange is a turn of the policy
and the observations after it.
"""

from collections.abc import Sequence
from itertools import takewhile

from swelab.records.training_records import RowMessage

DROP, LEFT, SPLIT, KEEP = "drop", "truncate_left_of_last_turn", "split", "keep_truncate"
Span = tuple[int, int]
"""(first, end): the exchanges first, ..., end-1 of a conversation."""


def exchanges(messages: Sequence[RowMessage]) -> list[list[int]]:
    """Message numbers of the head, then of each exchange."""
    head = list(takewhile(lambda number: messages[number].role != "assistant", range(len(messages))))
    groups = [head]
    for number in range(len(head), len(messages)):
        if messages[number].role == "assistant":
            groups.append([])
        groups[-1].append(number)
    return groups


def spans(sizes: Sequence[int], spoken: Sequence[int], policy: str, limit: int) -> list[Span]:
    """The range of exchanges in each row made from an over-long conversation; no range if nothing fits.

    sizes: tokens of the head, then of each exchange; spoken: tokens of the policy's turn in each exchange.
    drop: no row. truncate_left_of_last_turn: as many of the last exchanges as fit. split: every exchange
    once, in rows that fit. keep_truncate: as many of the first exchanges as fit; the last of them may end
    before its observation.
    """
    head, costs = sizes[0], sizes[1:]
    if policy == KEEP:
        kept = _fitting(costs, limit - head)
        more = kept < len(costs) and sum(costs[:kept]) + spoken[kept] <= limit - head
        return [(0, kept + more)] if kept + more else []
    if policy == LEFT:
        kept = _fitting(costs[::-1], limit - head)
        return [(len(costs) - kept, len(costs))] if kept else []
    found: list[Span] = []
    start = 0
    while policy == SPLIT and start < len(costs):
        count = _fitting(costs[start:], limit - head)
        if not count:
            return []
        found.append((start, start + count))
        start += count
    return found


def _fitting(costs: Sequence[int], room: int) -> int:
    """How many of the first costs fit together into the limit."""
    for count, cost in enumerate(costs):
        room -= cost
        if room < 0:
            return count
    return len(costs)


def cut(messages: Sequence[RowMessage], groups: Sequence[Sequence[int]], span: Span) -> list[RowMessage]:
    """The head and the exchanges of a span."""
    chosen = [*groups[0], *(number for group in groups[1:][slice(*span)] for number in group)]
    return [messages[number] for number in chosen]
