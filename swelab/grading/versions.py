"""Numbers that keys hold: raised by hand when equal inputs could lead to something else."""

RUN = 6
"""The same patch could leave other evidence."""

GRADER = 7
"""The same evidence could get another verdict."""

GATE = 4
"""The same verdicts could say something else about a task."""
