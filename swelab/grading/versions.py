"""Version numbers that are part of keys.

Increment a number by hand if equal inputs could now give another result.
"""

RUN = 16
"""Raise `RUN` if the same patch could now produce different evidence."""

GRADER = 16
"""Raise `GRADER` if the same evidence could now get a different verdict."""

GATE = 8
"""Raise `GATE` if validation could now decide differently about a task, given the same verdicts."""
