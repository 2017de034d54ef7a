"""Patches that would win without repairing anything, to try the grader on."""
