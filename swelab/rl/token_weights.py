"""Computes the weight of each trained token in the loss of a batch, before the losses are computed.

The loss of a batch is the sum of weight x loss over all trained tokens. The weights depend on the whole
batch. So the losses of micro-batches and ranks only need to be added. A rollout that was split into several
samples counts once.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

MODES = ("token-mean", "seq-mean-token-sum", "seq-mean-token-sum-norm", "seq-mean-token-mean")


def token_weights(
    trained: Sequence[int], sequences: Sequence[Hashable], mode: str, horizon: int = 0
) -> list[float]:
    """Returns the weight that each trained token of a sample has, or 0.0 for a sample without trained tokens.

    trained: number of trained tokens of each sample. sequences: the sequence that each sample belongs to.
    To weigh all rollouts equally, use the rollout. To weigh all steps equally, use the sample itself. mode:
    one of MODES, which determines how the losses of tokens are combined:

    * token-mean: the mean over all tokens of the batch (DAPO);
    * seq-mean-token-sum: a sum over the tokens of each sequence, and the mean of these sums;
    * seq-mean-token-sum-norm: the same, divided by the constant `horizon` (Dr. GRPO);
    * seq-mean-token-mean: a mean over the tokens of each sequence, and the mean of these means (GRPO).

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
