"""Numbers that keys hold: raised by hand when equal inputs could lead to something else."""

RUN = 4
"""The same patch could leave other evidence."""

GRADER = 5
"""The same evidence could get another verdict."""

GATE = 3
"""The same verdicts could say something else about a task."""
