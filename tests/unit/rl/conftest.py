"""Properties are tried on the same inputs in each run, and no verdict hangs on a machine's speed."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")
