"""The pace at which rollouts may start: never so far ahead of the weights that their groups grow too old.

Groups are not thrown away for their age; they are not started too early. A group that starts now is trained
in a step that the number of groups before it decides, so its age is known when it starts.
"""

import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


class Admission:
    """Lets groups start while they will be trained at most `ahead` weight versions after their start.

    `per_step` groups make a training step; `version` is the number of steps that have been trained. With
    `ahead` 0 the next step's groups start when the weights of this one are in the engine. Groups that a
    step did not use (dropped, refilled) are given back by `replace`.
    """

    def __init__(self, per_step: int, ahead: int = 0, version: int = 0, admitted: int | None = None):
        if per_step < 1 or ahead < 0:
            raise ValueError(f"{per_step} groups a step, {ahead} versions ahead: expected at least 1 and 0")
        self.per_step, self.ahead = per_step, ahead
        self._version = version
        self._admitted = version * per_step if admitted is None else admitted
        self._changed = threading.Condition()
        self._closed = False

    @property
    def room(self) -> int:
        """The number of groups that may start now."""
        return max(0, (self._version + self.ahead + 1) * self.per_step - self._admitted)

    def published(self, version: int) -> None:
        """Weights of `version` are in every engine: what waited for them may start."""
        with self._changed:
            self._version = max(self._version, version)
            self._changed.notify_all()

    def replace(self, groups: int = 1) -> None:
        """As many further groups may start: that many were admitted and will not be trained."""
        with self._changed:
            self._admitted -= groups
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more starts; what waits ends."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def paced(self, groups: Iterable[Item]) -> Iterator[Item]:
        """`groups`, each as soon as it may start; ends when closed. One thread may iterate over it."""
        for group in groups:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or self.room > 0)
                if self._closed:
                    return
                self._admitted += 1
            yield group
