"""Drops, truncates or splits conversations that are longer than the limit.

Every row keeps the head: the system prompt and the task. Exchanges follow the head. An exchange is one
assistant turn and the observations after it.
"""

from collections.abc import Sequence
from itertools import takewhile

from swelab.records.training_records import RowMessage

DROP, LEFT, SPLIT, KEEP = "drop", "truncate_left_of_last_turn", "split", "keep_truncate"
Span = tuple[int, int]
"""(first, end): the range of exchanges from `first` to `end` - 1."""


def exchanges(messages: Sequence[RowMessage]) -> list[list[int]]:
    """Returns the message indexes of the head, then of each exchange."""
    head = list(takewhile(lambda number: messages[number].role != "assistant", range(len(messages))))
    groups = [head]
    for number in range(len(head), len(messages)):
        if messages[number].role == "assistant":
            groups.append([])
        groups[-1].append(number)
    return groups


def spans(sizes: Sequence[int], spoken: Sequence[int], policy: str, limit: int) -> list[Span]:
    """Divides an over-long conversation into rows. Returns the range of exchanges of each row.

    sizes: tokens of the head, then of each exchange. spoken: tokens of the assistant turn in each exchange.
    The policy `drop` makes no row. `truncate_left_of_last_turn` makes one row, with as many of the last
    exchanges as fit. `split` makes rows with all exchanges, or no row if an exchange is too long.
    `keep_truncate` makes one row, with as many of the first exchanges as fit. Of its last exchange, only the
    assistant turn needs to fit.
    """
    head, costs = sizes[0], sizes[1:]
    if policy == KEEP:
        kept = _fitting(costs, limit - head)
        more = kept < len(costs) and sum(costs[:kept]) + spoken[kept] <= limit - head
        return [(0, kept + more)] if kept + more else []
    if policy == LEFT:
        kept = _fitting(costs[::-1], limit - head)
        return [(len(costs) - kept, len(costs))] if kept else []
    result: list[Span] = []
    start = 0
    while policy == SPLIT and start < len(costs):
        count = _fitting(costs[start:], limit - head)
        if not count:
            return []
        result.append((start, start + count))
        start += count
    return result


def _fitting(costs: Sequence[int], room: int) -> int:
    """Returns the largest n such that the sum of the first n costs is at most `room`."""
    for count, cost in enumerate(costs):
        room -= cost
        if room < 0:
            return count
    return len(costs)


def select_span(
    messages: Sequence[RowMessage], groups: Sequence[Sequence[int]], span: Span
) -> list[RowMessage]:
    """Returns the messages of the head and of the exchanges in `span`. groups: result of `exchanges`."""
    chosen = [*groups[0], *(number for group in groups[1:][slice(*span)] for number in group)]
    return [messages[number] for number in chosen]
