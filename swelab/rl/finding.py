"""What is found before a training starts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One thing that stands against a training (an error), or is likely to make it slow or end it.

    good: nothing does, and `text` says what was looked at.
    """

    error: bool
    text: str
    good: bool = False

    @property
    def mark(self) -> str:
        """The first word of its line."""
        return "ok " if self.good else "FIX" if self.error else "low"
