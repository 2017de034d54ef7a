"""Trajectories as training rows: selection, styles, lengths, preference pairs."""
