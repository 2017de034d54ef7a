"""Which tasks are usable: the gold patch always resolves and an empty patch never does."""
