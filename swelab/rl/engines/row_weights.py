"""Corrects the row weights of a verl batch, so that each sequence has the same weight as in our trainer.

When verl averages over a batch, its divisors differ from ours. verl's means over sequences count every row,
even padding rows. If a rollout was split into several rows, verl counts it once for each row. verl's losses
are proportional to the advantages. So a factor on the advantages of a row corrects the row's weight.
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
    """Returns the factor for each row's advantages, or 0.0 for rows without trained tokens.

    trained: number of trained tokens of each row. accepted: number of these tokens that verl keeps. verl
    rejects tokens whose probability differs too much between trainer and engine. sequences, mode, horizon:
    see `token_weights`. Raises ValueError as `token_weights` does.
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
    """Returns the number of optimizer steps of a batch: `steps` if it divides rows / each, otherwise rows /
    each.

    rows: number of rows in the batch, a multiple of `each`. each: number of rows that verl uses for one step.
    """
    parts = rows // each
    return parts if parts % steps else steps
