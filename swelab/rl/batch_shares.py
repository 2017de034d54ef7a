"""Divides a batch into optimizer steps, into forward passes, and among the ranks."""

from collections.abc import Sequence
from dataclasses import dataclass

from swelab.rl.samples import Sample
from swelab.sft.train.grouping import deal, padded_tokens


@dataclass(frozen=True)
class TrainingSample:
    """A sample with an advantage and a weight for each token.

    The advantage and the weight of a token that is not trained are 0. A token's weight is its share in the
    loss of the whole batch (see `token_weights`). name: name of the sample's rollout, for messages.
    """

    sample: Sample
    advantages: Sequence[float]
    weights: Sequence[float]
    name: str = ""


FILLER = TrainingSample(Sample([0, 0], [0, 0], [0.0, 0.0], [-1, -1]), (0.0, 0.0), (0.0, 0.0))
"""A sample without trained tokens. All ranks must make the same number of passes, so a rank with too few
samples uses FILLER."""

Share = list[list[list[TrainingSample]]]
"""A rank's share of a batch: a list of optimizer steps, each a list of forward passes, each a list of
samples."""


def passes(lengths: Sequence[int], batch_tokens: int, ranks: int = 1) -> list[list[list[int]]]:
    """Returns the rows of each forward pass of each rank: `result[rank][pass]` is a list of row numbers.

    The rows are divided so that padding is small and the ranks have equal work. All ranks make the same
    number of passes, each with at least one row. A row number of len(lengths) or more stands for `FILLER`.
    """
    rows = -len(lengths) % ranks + len(lengths)
    sizes = [*lengths, *[len(FILLER.sample.ids)] * (rows - len(lengths))]
    dealt, _ = deal([list(range(rows))], sizes, batch_tokens, ranks, padded_tokens)
    return [dealt[0][rank::ranks] for rank in range(ranks)]


def shares(
    batch: Sequence[TrainingSample], minibatches: int, batch_tokens: int, ranks: int = 1
) -> list[Share]:
    """Returns each rank's share of a batch. Every share is empty if the batch has no trained token."""
    trained = [each for each in batch if each.sample.trained]
    rank_shares: list[Share] = [[] for _ in range(ranks)]
    for part in range(min(minibatches, len(trained))):
        step = trained[part::minibatches]
        dealt = passes([len(each.sample.ids) for each in step], batch_tokens, ranks)
        filled = [*step, *[FILLER] * ranks]
        for share, mine in zip(rank_shares, dealt, strict=True):
            share.append([[filled[row] for row in rows] for rows in mine])
    return rank_shares
