"""The demo's base model: its text, its tokenizer, its pre-training."""
