"""Runs one patch in one sandbox: what runs, how the run is guarded, and the verdict on its evidence."""
