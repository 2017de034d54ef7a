"""Decides which tasks are usable: the gold patch must always resolve the task, and an empty patch never."""
