"""Costs of calls to hosted models: prices, keys and budgets. Turns that were paid for are not paid again."""
