"""Measures the share of a step's time in which the learner, the engine and the rollout slots were idle."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Busy:
    """Measures how long threads are busy with one kind of work. Pieces of work may overlap. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now, self._since = 0, time.monotonic()
        self._any = self._sum = 0.0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Counts one piece of work as running while the block runs."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def read(self) -> tuple[float, float]:
        """Returns two durations in seconds, counted since this object was made: the time in which any work
        ran, and the sum over all pieces of work."""
        with self._lock:
            self._count()
            return self._any, self._sum

    def _change(self, by: int) -> None:
        with self._lock:
            self._count()
            self._now += by

    def _count(self) -> None:
        now = time.monotonic()
        passed, self._since = now - self._since, now
        self._any += passed * bool(self._now)
        self._sum += passed * self._now


class StepClock:
    """Measures one step's duration and idle shares. workers: number of slots for concurrent rollouts."""

    def __init__(self, places: Busy, engine: Busy | None, workers: int):
        self._places, self._engine, self._workers = places, engine, workers
        self._before = places.read()[1], engine.read()[0] if engine else 0.0
        self._began = time.monotonic()

    def seconds(self) -> float:
        """Returns the seconds since the step began."""
        return time.monotonic() - self._began

    def idle(self, trained: float, published: float) -> dict[str, float]:
        """Returns the idle shares (0..1) of the learner, the engine and the rollout slots during the step.

        The engine's share is omitted if other processes use the engine too. trained: seconds that the learner
        worked. published: seconds that the servers took to load new weights before the step.
        """
        whole = max(self.seconds() + published, 1e-9)
        occupied = self._places.read()[1] - self._before[0]
        shares = {
            "idle/trainer": round(max(0.0, 1 - trained / whole), 4),
            "idle/places": round(max(0.0, 1 - occupied / (whole * self._workers)), 4),
        }
        if self._engine:
            asked = self._engine.read()[0] - self._before[1]
            shares["idle/engine"] = round(max(0.0, 1 - asked / whole), 4)
        return shares
