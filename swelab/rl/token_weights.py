"""Computes the weight of each trained token in the loss of a batch, before the losses are computed.

The loss of a batch is the sum over its trained tokens of weight x loss. The weights depend on the whole
batch. So the losses of micro-batches and ranks only need to be summed, and a rollout that was split into
several samples counts once.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")


def token_weights(
    trained: Sequence[int], sequences: Sequence[Hashable], mode: str, horizon: int = 0
) -> list[float]:
    """Returns the weight that each trained token of a sample has, or 0.0 for a sample without trained tokens.

    trained: number of trained tokens of each sample. sequences: the sequence that each sample belongs to.
    This is the rollout if all rollouts have the same weight, or the sample itself if all steps have. mode:
    one of MODES:

    * token-mean: each token of the batch has the same weight (DAPO);
    * seq-mean-token-sum: the mean over sequences of the sum over a sequence's tokens;
    * seq-mean-token-sum-norm: the same, divided by the constant `horizon` (Dr. GRPO);
    * seq-mean-token-mean: the mean over sequences of the mean over a sequence's tokens (GRPO).

    A sequence without trained tokens does not count. Raises ValueError if `mode` is unknown or its horizon is
    missing.
    """
    if mode not in MODES:
        raise ValueError(f"aggregation {mode!r}: expected {', '.join(MODES)}")
    if mode == "seq-mean-token-sum-norm" and horizon < 1:
        raise ValueError("aggregation seq-mean-token-sum-norm needs a horizon of at least one token")
    tokens: Counter[Hashable] = Counter()
    for count, sequence in zip(trained, sequences, strict=True):
        tokens[sequence] += count
    total = sum(tokens.values())
    counted = sum(count > 0 for count in tokens.values())
    divisors: dict[str, Callable[[Hashable], float]] = {
        "token-mean": lambda sequence: total,
        "seq-mean-token-sum": lambda sequence: counted,
        "seq-mean-token-sum-norm": lambda sequence: counted * horizon,
        "seq-mean-token-mean": lambda sequence: counted * tokens[sequence],
    }
    divisor = divisors[mode]
    return [
        1.0 / divisor(sequence) if count else 0.0 for count, sequence in zip(trained, sequences, strict=True)
    ]
