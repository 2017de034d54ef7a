"""A training run: its plan, its trainers (torchtune, TRL), its memory, its checkpoints, its log."""
