"""Patches that try to be resolved without repairing anything, to test the grader."""
