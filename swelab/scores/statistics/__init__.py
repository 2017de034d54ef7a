"""Intervals, tests and comparisons of resolve rates."""
