"""How the time of a reader grows with what it reads, measured in one process: for tests marked full."""

import time

TIMES = 8
"""A reader of four times as much takes about 4 times as long if it reads each place once, else 16 times."""


def growth(read, make, size):
    """CPU seconds of `read` for `make(4 * size)` over those for `make(size)`; the least of three each."""
    small, large = (min(_seconds(read, value) for _ in range(3)) for value in (make(size), make(4 * size)))
    return large / max(small, 0.001)


def _seconds(read, value):
    started = time.thread_time()
    read(value)
    return time.thread_time() - started
