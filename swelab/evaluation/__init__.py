"""One command from a model and a list of tasks to a score. Uses rollouts, grading and scores."""
