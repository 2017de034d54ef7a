"""Gives each sequence the same weight in another engine's batch as in ours.

verl averages a batch with its own divisors. Its means over sequences count every row, even padding rows, and
count a rollout once for each row into which it was split. Its losses are proportional to the advantages, so a
factor on the advantages of a row corrects its weight.
"""

from collections.abc import Callable, Hashable, Sequence

from swelab.rl.token_weights import token_weights


def corrections(
    trained: Sequence[int],
    accepted: Sequence[int],
    sequences: Sequence[Hashable],
    mode: str,
    horizon: int = 0,
) -> list[float]:
    """The factor of each row's advantages; 0.0 for rows that train nothing.

    trained: number of trained tokens of each row. accepted: how many of them verl keeps after it rejects
    tokens whose probability differs too much between trainer and engine. sequences, mode, horizon: see
    `token_weights`. Raises ValueError as `token_weights` does.
    """
    ours = token_weights(trained, sequences, mode, horizon)
    rows, tokens = len(trained), sum(trained)
    theirs: dict[str, Callable[[int], int]] = {
        "token-mean": lambda row: tokens,
        "seq-mean-token-sum": lambda row: rows,
        "seq-mean-token-sum-norm": lambda row: rows * horizon,
        "seq-mean-token-mean": lambda row: rows * accepted[row],
    }
    divisor = theirs[mode]
    return [weight * divisor(row) if weight else 0.0 for row, weight in enumerate(ours)]


def optimizer_steps(rows: int, each: int, steps: int) -> int:
    """Returns the number of optimizer steps of a batch: `steps`, if its rows can be divided so.

    each: verl's number of rows of one step; `rows` is a multiple of it. If rows / each is not divisible by
    `steps`, each group of `each` rows is one step.
    """
    parts = rows // each
    return parts if parts % steps else steps
