"""Measures the total duration of all runs of an evaluation, including killed runs."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

from swelab.records import read_json, write_json


class RunTime:
    """Total minutes of all runs. The minutes of earlier runs are read from `path`. Thread-safe. A killed run
    counts up to its last call of `note`. Raises InputError if `path` is not a JSON file."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.monotonic):
        self._path, self._clock, self._began = path, clock, clock()
        found = read_json(path) if path.is_file() else {}
        self._before = float(found.get("minutes") or 0) if isinstance(found, dict) else 0.0
        self._lock = threading.Lock()

    def note(self) -> float:
        """Writes the total minutes so far, and returns them."""
        with self._lock:
            minutes = self._before + (self._clock() - self._began) / 60
            write_json(self._path, {"minutes": minutes})
            return minutes
