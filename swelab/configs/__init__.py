"""Reads the recipes under `configs/` strictly, and loads experiments that consist of these recipes."""
