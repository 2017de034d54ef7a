"""Scaffolds: the loops in which a policy works on a task.

An agent gets a model and a sandbox. It knows neither the model's vendor nor the sandbox's backend.
"""
