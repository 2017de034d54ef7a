"""Corrects the weight of a sequence in another engine's batch to its weight in ours.

verl puts the tokens of a batch together by its own divisors: in its means over sequences every row counts,
rows that only fill the batch up too, and a rollout that was split into several rows counts several times. Its
losses grow in proportion to the advantages, so a factor on the advantages of a row undoes that.
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

    trained: tokens of each row that are trained. accepted: of those, the ones that verl did not reject where
    trainer and engine differ. sequences, mode, horizon: see `token_weights`. Raises ValueError as it does.
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
    """The optimizer steps of a batch: `steps`, however many rows its rollouts were split into.

    each: rows that verl would make one step of, of which `rows` is a multiple. Where that multiple cannot be
    shared out among the steps wanted, one step for each.
    """
    parts = rows // each
    return parts if parts % steps else steps
