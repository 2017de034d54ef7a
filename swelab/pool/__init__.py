"""Sandboxes over a network: a server on every container host, and one that lends their places."""
