"""Reinforcement learning from test results.

Some parts of the method need neither an engine nor our learner: advantages, token weights, samples, the
context manager, process rewards, and the effect of failed rollouts. These modules do not import torch, so
other engines import them unchanged.
"""
