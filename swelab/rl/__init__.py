"""Reinforcement learning with rewards from test results.

The modules for advantages, token weights, samples, the context manager, process rewards and failed rollouts
do not import torch. So other training engines can import these modules unchanged.
"""
