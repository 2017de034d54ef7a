"""Checks before anything is started: what a machine, a service or a recipe lacks, one sentence each."""
