"""Measures how the time of a reader grows with its input, in one process. For tests marked full."""

import time

TIMES = 8
"""Four times the data takes about 4 times as long if each place is read once, otherwise 16 times.
"""


def growth(read, make, size):
    """Returns CPU seconds of `read` for `make(4 * size)` over those for `make(size)`, each least of three."""
    small, large = (min(_seconds(read, value) for _ in range(3)) for value in (make(size), make(4 * size)))
    return large / max(small, 0.001)


def _seconds(read, value):
    started = time.thread_time()
    read(value)
    return time.thread_time() - started
