"""Reinforcement learning from test results.

The method's parts that need no engine and no learner of ours are modules without torch: advantages, token
weights, samples, the context manager, process rewards, and what a failed rollout means.
Another engine imports them as they are.
"""
