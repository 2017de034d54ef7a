"""Bills calls to hosted models: prices, API keys, budgets, and stored turns that need not be paid for
again."""
