"""Distributes a batch: assigns samples to forward passes, optimizer steps and ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from swelab.rl.samples import Sample
from swelab.sft.train.grouping import deal, padded_tokens


@dataclass(frozen=True)
class TrainingSample:
    """A sample with the advantage and the weight of each of its tokens.

    Both are 0 if a token is not trained. A weight is the token's share in the loss of the whole batch
    (`token_weights`). name: the name of the sample's rollout, for messages.
    """

    sample: Sample
    advantages: Sequence[float]
    weights: Sequence[float]
    name: str = ""


FILLER = TrainingSample(Sample([0, 0], [0, 0], [0.0, 0.0], [-1, -1]), (0.0, 0.0), (0.0, 0.0))
"""A sample that trains nothing. All ranks make equally many passes; a rank that has no more samples runs
this."""

Share = list[list[list[TrainingSample]]]
"""A rank's share of a batch: optimizer steps > forward passes > samples."""


def passes(lengths: Sequence[int], batch_tokens: int, ranks: int = 1) -> list[list[list[int]]]:
    """Returns for each rank the row numbers of each forward pass, with little padding and balanced work.

    Numbers from len(lengths) on are fillers: all ranks make as many passes, each with at least one row.
    """
    rows = -len(lengths) % ranks + len(lengths)
    sizes = [*lengths, *[len(FILLER.sample.ids)] * (rows - len(lengths))]
    dealt, _ = deal([list(range(rows))], sizes, batch_tokens, ranks, padded_tokens)
    return [dealt[0][rank::ranks] for rank in range(ranks)]


def shares(
    batch: Sequence[TrainingSample], minibatches: int, batch_tokens: int, ranks: int = 1
) -> list[Share]:
    """Returns each rank's share of a batch; a share has no steps if nothing is trained."""
    trained = [each for each in batch if each.sample.trained]
    found: list[Share] = [[] for _ in range(ranks)]
    for part in range(min(minibatches, len(trained))):
        step = trained[part::minibatches]
        dealt = passes([len(each.sample.ids) for each in step], batch_tokens, ranks)
        filled = [*step, *[FILLER] * ranks]
        for share, mine in zip(found, dealt, strict=True):
            share.append([[filled[row] for row in rows] for rows in mine])
    return found
