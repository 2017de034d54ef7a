"""Servers of our own weights: the inference engine, its router, other nodes, completed checkpoints."""
