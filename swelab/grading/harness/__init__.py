"""Runs one patch in one sandbox under a guard, and judges the evidence of the run."""
