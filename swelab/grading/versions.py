"""Versions that are part of keys. Raise one by hand if equal inputs could now give another result."""

RUN = 13
"""Raise it if the same patch could leave other evidence."""

GRADER = 14
"""Raise it if the same evidence could get another verdict."""

GATE = 7
"""Raise it if the gate could decide otherwise about a task, given the same verdicts."""
