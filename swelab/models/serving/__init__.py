"""Serves our own weights: inference engines and the gate in front of them, on one or more nodes."""
