"""A training run: its plan, its trainers (torchtune, TRL), memory, checkpoints and log."""
