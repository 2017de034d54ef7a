"""Distributes a batch: assigns samples to forward passes, optimizer steps and ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from swelab.rl.samples import Sample
from swelab.sft.train.grouping import deal, padded_tokens


@dataclass(frozen=True)
class TrainingSample:
    """A sample, with what each of its tokens is trained with.

    advantages and weights: one a token, 0 where none is trained; a weight is that token's share in the loss
    of the whole batch (`token_weights`). name: of its rollout, for messages.
    """

    sample: Sample
    advantages: Sequence[float]
    weights: Sequence[float]
    name: str = ""


FILLER = TrainingSample(Sample([0, 0], [0, 0], [0.0, 0.0], [-1, -1]), (0.0, 0.0), (0.0, 0.0))
"""A sample that trains nothing. Ranks wait for each other: one without samples left computes this one."""

Share = list[list[list[TrainingSample]]]
"""A rank's share of a batch: its optimizer steps, their forward passes, the samples of each."""


def passes(lengths: Sequence[int], batch_tokens: int, ranks: int = 1) -> list[list[list[int]]]:
    """For each rank the rows of each of its forward passes, so that little is padded and ranks end together.

    Rows from len(lengths) on are fillers: each rank makes as many passes, each of at least one row.
    """
    rows = -len(lengths) % ranks + len(lengths)
    sizes = [*lengths, *[len(FILLER.sample.ids)] * (rows - len(lengths))]
    dealt, _ = deal([list(range(rows))], sizes, batch_tokens, ranks, padded_tokens)
    return [dealt[0][rank::ranks] for rank in range(ranks)]


def shares(
    batch: Sequence[TrainingSample], minibatches: int, batch_tokens: int, ranks: int = 1
) -> list[Share]:
    """The share of each rank in a batch; no step where nothing is trained."""
    trained = [each for each in batch if each.sample.trained]
    found: list[Share] = [[] for _ in range(ranks)]
    for part in range(min(minibatches, len(trained))):
        step = trained[part::minibatches]
        dealt = passes([len(each.sample.ids) for each in step], batch_tokens, ranks)
        filled = [*step, *[FILLER] * ranks]
        for share, mine in zip(found, dealt, strict=True):
            share.append([[filled[row] for row in rows] for rows in mine])
    return found
