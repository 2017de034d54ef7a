"""Sandboxes over a network: an exec server on every container host, and a pool server that leases them."""
