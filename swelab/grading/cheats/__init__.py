"""Forged patches that try to be graded as resolved without repairing anything. They test the grader."""
