"""What calls of hosted models cost: prices, keys, budgets, and turns that are not paid for twice."""
