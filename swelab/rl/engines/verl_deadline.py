"""Saves a checkpoint before a SLURM job ends.

A job ends at its time limit, or when the grace time after a preemption is over. verl saves every `verl.save`
steps. In addition, the trainer checks after each step whether the job may end before the next step is
finished and saved. If so, the trainer saves at once.
"""

import logging
import os
import time
from collections.abc import Callable
from typing import Any, cast

from swelab.cluster import slurm
from swelab.cluster.slurm import SlurmError

SAVE_SECONDS = 120.0
"""Assumed duration of saving a checkpoint, until the first checkpoint has been timed."""
MARGIN = 1.5
"""Safety factor on the estimated time for the next step and its checkpoint. The estimate is the longest of
the last `STEPS` steps plus the longest checkpoint so far."""
STEPS = 5
_log = logging.getLogger(__name__)


def seconds_left() -> float | None:
    """Returns the seconds until the current SLURM job ends. Returns None without a job, or if SLURM does not
    answer.

    The result is computed from the job's end time, which a preemption changes. SLURM's field for the
    remaining time (%L) depends only on the time limit. For a job without a limit, SLURM reports an end in a
    year.
    """
    if not (job := os.environ.get("SLURM_JOB_ID")):
        return None
    try:
        return slurm.job_end(job) - time.time()
    except SlurmError as error:
        _log.warning("no checkpoint before this job's end: %s", error)
        return None


class Deadline:
    """Decides after each step whether to save, from the durations of past steps and checkpoints. left:
    returns the seconds until the job ends, or None if this is unknown. clock: returns the current time in
    seconds."""

    def __init__(
        self, left: Callable[[], float | None] = seconds_left, clock: Callable[[], float] = time.monotonic
    ):
        self._left, self._clock = left, clock
        self._begun: float | None = None
        self._steps: list[float] = []
        self._save = 0.0

    def begin(self) -> None:
        """Records that a step begins."""
        self._begun = self._clock()

    def is_near(self) -> bool:
        """Returns whether the job may end before another step is finished and saved. Call this at the end of
        a step."""
        if self._begun is not None:
            self._steps = [*self._steps, self._clock() - self._begun][-STEPS:]
        if not self._steps or (left := self._left()) is None:
            return False
        return left <= MARGIN * (max(self._steps) + (self._save or SAVE_SECONDS))

    def record_save(self, seconds: float) -> None:
        """Records how many seconds a checkpoint took."""
        self._save = max(self._save, seconds)


class SavesInTime:
    """Mixin for verl's trainer classes: saves a checkpoint when the job will end soon. In the list of bases,
    this mixin must come before verl's class."""

    config: Any
    global_steps: int
    _deadline: Deadline | None = None
    _saved_step: int = 0

    @property
    def deadline(self) -> Deadline:
        """The job's deadline, made at the first access."""
        self._deadline = self._deadline or Deadline()
        return self._deadline

    def on_step_begin(self) -> None:
        """See verl's PPOTrainer."""
        self.deadline.begin()
        cast(Any, super()).on_step_begin()

    def _save_checkpoint(self) -> None:
        """See verl's PPOTrainer."""
        start = time.monotonic()
        cast(Any, super())._save_checkpoint()
        self._saved_step = self.global_steps
        self.deadline.record_save(time.monotonic() - start)

    def on_step_end(self) -> None:
        """See verl's PPOTrainer, which calls this right after its own saves."""
        if self._saved_step != self.global_steps and self.deadline.is_near():
            print(f"step {self.global_steps}: saved, as the SLURM job is about to end", flush=True)
            self._save_checkpoint()
        cast(Any, super()).on_step_end()
