"""What a person at a terminal sees: one line for a fault, progress, the display of a workflow run."""
