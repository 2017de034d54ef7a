"""Provides sandboxes over a network: an exec server runs on every container host, and a pool server leases
the sandboxes."""
