"""Runs a policy on the tasks of a subset: live rollouts, recorded trajectories, and predictions."""
