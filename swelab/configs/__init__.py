"""Reads the recipes under `configs/` strictly, and loads experiments that are made of them."""
