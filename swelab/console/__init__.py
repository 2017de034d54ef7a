"""Terminal output: one line for a fault, progress, the display of a workflow run."""
