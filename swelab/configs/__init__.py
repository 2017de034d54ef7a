"""Recipes under `configs/` read strictly, and experiments put together from them."""
