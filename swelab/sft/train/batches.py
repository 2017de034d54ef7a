"""Plan of a training run: the conversations that share each forward pass.

A plan lists the forward passes of every epoch. So all trainers make the same passes in the same order, and
the cost of a step is known before it runs. Rows come in the order of torchtune's sampler: a permutation
seeded with the epoch number. `how` is one of:

plain    A step has as many rows as the recipe says, `batch_size` in a forward pass.
grouped  A step has the same rows, grouped into forward passes by length. The gradient of a step is a sum over
         tokens, so it stays the same.
packed   Rows are joined to packs of up to `max_seq_len` tokens (best fit, longest first). A forward pass is
         one pack, and steps count packs instead of rows.
"""

import bisect
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from swelab.configs.kinds.sft import Train
from swelab.records import InputError, read_json, write_bytes
from swelab.sft.train.grouping import Cost, deal, padded_tokens
from swelab.sft.train.ranks import Ranks, share

Batch = list[int]
"""Row indexes of a forward pass."""


@dataclass(frozen=True)
class Plan:
    """The forward passes of each epoch, in the order step, pass, rank.
    A step consists of `passes` forward passes on each of `ranks` ranks."""

    how: str
    ranks: int
    passes: int
    epochs: list[list[Batch]]
    max_seq_len: int
    rows: int

    @property
    def steps_per_epoch(self) -> int:
        """The number of optimizer steps in an epoch."""
        return len(self.epochs[0]) // (self.passes * self.ranks)

    @property
    def largest(self) -> int:
        """Number of rows in the largest forward pass."""
        return max(len(batch) for epoch in self.epochs for batch in epoch)

    def steps(self) -> Iterator[list[Batch]]:
        """Yields the forward passes of each step of the run, for all ranks."""
        size = self.passes * self.ranks
        for epoch in self.epochs:
            yield from (epoch[start : start + size] for start in range(0, len(epoch), size))

    def left_out(self) -> int:
        """Returns how many rows an epoch omits because they do not fill a step.
        If the number differs between epochs, returns the largest."""
        return max(self.rows - sum(map(len, epoch)) for epoch in self.epochs)

    def positions(self, batch: Batch, lengths: Sequence[int], fixed: bool) -> int:
        """Returns how many token positions a forward pass computes.
        fixed: whether packs are padded to `max_seq_len`."""
        if self.how == "packed":
            return self.max_seq_len if fixed else sum(lengths[row] for row in batch)
        return max(lengths[row] for row in batch) * len(batch)


def plan_batches(lengths: Sequence[int], train: Train, ranks: Ranks, cost: Cost = padded_tokens) -> Plan:
    """Plans a run over rows of these lengths (in tokens) with a recipe's `train` settings.

    cost: estimates the time of a forward pass; used only if rows are grouped by length. Raises InputError if
    a row is longer than a pack, or if ranks cannot share a step evenly. Raises InputError if there are fewer
    rows or packs than a step needs.
    """
    mine = share(train, ranks)
    passes, batch = mine.gradient_accumulation_steps, mine.batch_size
    packs = pack(lengths, train.max_seq_len) if train.packed else []
    count, what = (len(packs), "packs") if train.packed else (len(lengths), "rows")
    per_step = passes * batch * ranks.total
    steps = count // per_step
    if not steps:
        raise InputError(f"{count} {what}", expected=f"at least the {per_step} of one optimizer step")
    orders = [permutation(count, epoch) for epoch in range(train.epochs)]
    if train.packed:
        ordered = [[packs[number] for number in order[: steps * per_step]] for order in orders]
        return Plan("packed", ranks.total, passes * batch, ordered, train.max_seq_len, len(lengths))
    epochs = [[_plain(order, step, ranks.total, passes, batch) for step in range(steps)] for order in orders]
    how = "plain"
    if train.group_by_length:
        how = "grouped"
        epochs, passes = _regroup(epochs, lengths, train.max_batch_tokens, ranks.total, cost)
    flat = [[batch for step in epoch for batch in step] for epoch in epochs]
    return Plan(how, ranks.total, passes, flat, train.max_seq_len, len(lengths))


def permutation(count: int, epoch: int) -> list[int]:
    """Returns the order of rows in an epoch, as torchtune's sampler draws it.
    The seed is 0 plus the epoch."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(epoch)).tolist()


def _plain(order: Sequence[int], step: int, ranks: int, passes: int, batch: int) -> list[Batch]:
    """Returns the forward passes of a step. Rank r gets the rows at r, r + ranks, ... in `order`."""
    found = []
    for number in range(step * passes, (step + 1) * passes):
        for rank in range(ranks):
            mine = order[rank + number * batch * ranks : (number + 1) * batch * ranks : ranks]
            found.append(list(mine))
    return found


def _regroup(
    epochs: list[list[list[Batch]]], lengths: Sequence[int], bound: int, ranks: int, cost: Cost
) -> tuple[list[list[list[Batch]]], int]:
    """Regroups the rows of each step into passes. Returns (steps of each epoch, passes per rank and step)."""
    steps = [[row for batch in step for row in batch] for epoch in epochs for step in epoch]
    dealt, passes = deal(steps, lengths, bound, ranks, cost)
    each = iter(dealt)
    return [[next(each) for _ in epoch] for epoch in epochs], passes


def pack(lengths: Sequence[int], limit: int) -> list[Batch]:
    """Packs rows into packs of at most `limit` tokens: best fit, longest first.

    Raises InputError if a row is longer than a pack.
    """
    packs: list[Batch] = []
    rooms: list[tuple[int, int]] = []  # (tokens left, pack), sorted
    for row in sorted(range(len(lengths)), key=lambda row: (-lengths[row], row)):
        length = lengths[row]
        if length > limit:
            raise InputError(
                f"row {row + 1} has {length} tokens", expected=f"at most train.max_seq_len {limit}"
            )
        at = bisect.bisect_left(rooms, (length, 0))
        if at < len(rooms):
            room, number = rooms.pop(at)
        else:
            room, number = limit, len(packs)
            packs.append([])
        packs[number].append(row)
        bisect.insort(rooms, (room - length, number))
    return packs


def write_plan(path: Path, plan: Plan) -> None:
    """Writes the plan as JSON, for the processes that train."""
    write_bytes(path, json.dumps(asdict(plan), separators=(",", ":")).encode())


def read_plan(path: str | Path) -> Plan:
    """Reads the plan that `write_plan` wrote."""
    return Plan(**read_json(path))
