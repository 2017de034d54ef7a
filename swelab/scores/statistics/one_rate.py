"""The interval of one resolve rate.

Rates are shares (0..1). Limits are rounded to ten significant digits, so that files do not depend on the last
bit of a platform's arithmetic. Only scipy's `special` is imported at the start, because importing `stats`
would take most of a script's start-up time.
"""

from math import sqrt

from scipy.special import ndtri

from swelab.records import InputError

CONFIDENCE = 0.95


def round_digits(value: float) -> float:
    """Rounds `value` to ten significant digits."""
    return float(f"{value:.10g}")


def wilson(resolved: int, total: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Returns Wilson's score interval of resolved/total, as (low, high) shares.

    Source: Wilson 1927; method 3 of Newcombe 1998, Statistics in Medicine 17:857-872. Raises InputError if
    total is 0 or resolved is not between 0 and total.
    """
    if total <= 0:
        raise InputError("a rate over no tasks", expected="at least one task")
    if not 0 <= resolved <= total:
        raise InputError(f"{resolved} resolved of {total}", expected="0 <= resolved <= total")
    share, z = resolved / total, ndtri((1 + confidence) / 2)
    middle, below = 2 * total * share + z * z, 2 * (total + z * z)
    half = z * sqrt(4 * total * share * (1 - share) + z * z)
    low = 0.0 if resolved == 0 else (middle - half) / below
    high = 1.0 if resolved == total else (middle + half) / below
    return round_digits(low), round_digits(high)
