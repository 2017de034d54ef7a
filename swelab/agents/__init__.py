"""Scaffolds: the loops in which a policy works on a task.

An agent gets a model and a sandbox. An agent does not depend on the model's vendor or on the sandbox's
backend.
"""
