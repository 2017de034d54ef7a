"""Costs of calls to hosted models: prices, keys, budgets, and turns that are not paid for twice."""
