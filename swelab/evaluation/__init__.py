"""Evaluates a model on a list of tasks, and writes a score. Uses the packages rollouts, grading and
scores."""
