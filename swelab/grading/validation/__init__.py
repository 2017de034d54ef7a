"""Decides which tasks are usable: their gold patch always resolves them, and an empty patch never does."""
