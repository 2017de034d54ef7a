"""Evaluates a model on a list of tasks, from one command to a score. Uses the packages rollouts, grading and
scores."""
