"""Terminal output: one line for an error, progress, and the display of a workflow run."""
