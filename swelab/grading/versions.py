"""Versions that enter keys. Raise one by hand when equal inputs could give another result."""

RUN = 13
"""Raise it when the same patch could leave other evidence."""

GRADER = 14
"""Raise it when the same evidence could get another verdict."""

GATE = 7
"""Raise it when the same verdicts could decide otherwise about a task."""
