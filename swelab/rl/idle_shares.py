"""Measures the share of a step's time during which the learner, the engine and the rollout places were
idle."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Busy:
    """Measures how long threads do work of one kind, which may overlap. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now, self._since = 0, time.monotonic()
        self._any = self._sum = 0.0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Counts one piece of work as running during the block."""
        self._change(1)
        try:
            yield
        finally:
            self._change(-1)

    def read(self) -> tuple[float, float]:
        """Returns (seconds with any work running, sum of the seconds of all pieces) since this object was
        made."""
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
    """Measures one step, and the idle shares during it. workers: number of places for rollouts."""

    def __init__(self, places: Busy, engine: Busy | None, workers: int):
        self._places, self._engine, self._workers = places, engine, workers
        self._before = places.read()[1], engine.read()[0] if engine else 0.0
        self._began = time.monotonic()

    def seconds(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self._began

    def idle(self, trained: float, published: float) -> dict[str, float]:
        """Idle shares of the step, 0..1: of the learner, the engine and the places.

        The engine's share is left out when other processes use the engine too.

        trained: seconds that the learner worked. published: seconds that the servers took to load new weights
        before the step.
        """
        whole = max(self.seconds() + published, 1e-9)
        occupied = self._places.read()[1] - self._before[0]
        found = {
            "idle/trainer": round(max(0.0, 1 - trained / whole), 4),
            "idle/places": round(max(0.0, 1 - occupied / (whole * self._workers)), 4),
        }
        if self._engine:
            asked = self._engine.read()[0] - self._before[1]
            found["idle/engine"] = round(max(0.0, 1 - asked / whole), 4)
        return found
