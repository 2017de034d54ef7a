"""Counts the instances of a shard that were lost to infrastructure. Beyond a limit, the shard fails."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic

from swelab.records import Fault, Kind

STREAK = 4
"""Number of losses in a row after which we assume that further instances would be lost, too.

With more workers than this number, one loss per worker is needed.
"""


class ShardLost(Fault):
    """More instances of a shard were lost to infrastructure than its policy allows."""


@dataclass
class Losses(Generic[Kind]):
    """Counts the losses of one shard. At most `most` losses are allowed.

    reason_of: returns why an instance was lost, from its record. policy: the policy whose recipe sets `most`.
    option: the command-line option that sets `most`, if no policy does. noun: name of finished instances in
    messages.
    """

    most: float = math.inf
    reason_of: Callable[[Kind], str] = str
    policy: str = ""
    noun: str = "instances"
    option: str = ""
    count: int = 0
    first: str = ""
    _streak: int = field(default=0, repr=False)

    def note(self, record: Kind, is_lost: bool) -> None:
        """Counts a finished instance."""
        self._streak = self._streak + 1 if is_lost else 0
        self.count += is_lost
        if is_lost and not self.first:
            # The record of a run for several tasks has `instances`.
            name = record.get("instance_id") or ", ".join(record.get("instances", []))
            self.first = f"{name}: {self.reason_of(record)}"

    def hopeless(self, workers: int) -> bool:
        """Returns whether the shard already fails and further instances would probably be lost, too."""
        return self.count > self.most and self._streak >= max(STREAK, workers)

    def check(self, total: int) -> None:
        """Raises ShardLost if too many of `total` instances were lost."""
        if self.count > self.most:
            whole = self.noun if self.option else "instances of this shard"
            counts = f"{self.count} of {total} {whole} were lost to infrastructure"
            allowed = f"{self.option or f'policy {self.policy}'} allows {self.most}"
            allowed += " (max_lost)" * (not self.option)
            raise ShardLost(
                f"{counts}; first {self.first}; {allowed}: mend this and run the same command;"
                f" finished {self.noun} are kept"
            )
