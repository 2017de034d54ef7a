"""Checks before a run starts: each fault of a machine, a service or a recipe gets one sentence."""
