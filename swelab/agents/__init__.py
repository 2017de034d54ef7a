"""Scaffolds: the loop in which a policy works on a task.

An agent is given a model and a sandbox, and knows neither the vendor nor the backend.
"""
