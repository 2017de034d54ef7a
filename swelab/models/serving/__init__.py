"""Servers of our own weights: sglang, its router, replicas on other nodes, completed checkpoints."""
