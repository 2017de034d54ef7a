"""Converts trajectories to training rows: selection, styles, lengths, preference pairs."""
