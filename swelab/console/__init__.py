"""Output for a person at a terminal: one line for a fault, progress, the display of a workflow run."""
